"""`cl-cnaps active`: what it prints, writes, resumes and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from active.muddled import muddled_folders
from click.testing import CliRunner, Result

from cl_cnaps.active.acquisition import STRATEGIES
from cl_cnaps.commands.main import main
from cl_cnaps.errors import MissingDataError
from cl_cnaps.experiments import active as active_run
from cl_cnaps.names import STRATEGIES as STRATEGY_NAMES
from cl_cnaps.records.record import read_record
from cl_cnaps.report.active import ActiveView

SMALL = (
    "--backbone", "resnet18", "--backbone-weights", "random", "--image-size", "32", "--workers", "0",
    "--initial", "2", "--per-round", "2", "--rounds", "2", "--runs", "2", "--pool", "4", "--test", "3",
)  # fmt: skip
"""A network of random weights on tiny images: numbers that mean nothing, soon."""

Active = Callable[..., Result]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return muddled_folders(tmp_path_factory.mktemp("pictures") / "photos", 3, 10)


@pytest.fixture
def active(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Active:
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))

    def run(*options: str, plots: bool = False) -> Result:
        given = ["--source", f"folder:{photos}", "--out", str(tmp_path / "runs"), *SMALL, *options]
        return CliRunner().invoke(main, ["active", *given, *([] if plots else ["--no-plots"])])

    return run


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_strategies_of_the_help_are_those_there_are() -> None:
    assert tuple(STRATEGIES) == tuple(STRATEGY_NAMES)


def test_json_has_a_line_for_each_strategy(active: Active, tmp_path: Path) -> None:
    result = active("--model", "transductive", "--weights", "none", "--json")
    found = lines(result)
    assert result.stderr == ""
    kinds = [(line["adaptation"], line["strategy"]) for line in found]
    assert kinds == [(kind, name) for kind in ("film", "none") for name in STRATEGY_NAMES]
    for line in found:
        assert (line["source"], line["alphabet"], line["model"]) == ("photos", None, "transductive")
        assert line["labels"] == [6, 8, 10]
        for values in line["accuracy"].values():
            assert len(values) == 3
            assert all(value >= 0 for value in values)
        assert 0 <= line["area"] <= 1
        assert (line["pool"], line["test"], line["classes"]) == (12, 9, 3)
        assert line["features"] == (
            "the same throughout" if line["adaptation"] == "none" else "adapted to the labels"
        )
    for kind in range(2):
        record = ActiveView(read_record(Path(found[3 * kind]["record"])))
        mine = [
            {key: value for key, value in line.items() if key != "record"} for line in found[3 * kind :][:3]
        ]
        assert record.rows == mine
        rows = record.record.table("curves")
        assert len(rows) == 2 * 3 * 3
        assert list(rows[0]) == ["run", "source", "alphabet", "strategy", "point", "labels", "accuracy"]
        curves = record.curves(None)
        assert curves["entropy"].mean(axis=0).tolist() == mine[1]["accuracy"]["mean"]
        assert record.record.config["query_set"] == 1000
    assert len(ActiveView.under([tmp_path / "runs"])) == 2


def test_a_person_reads_a_table_and_finds_the_figure(active: Active, tmp_path: Path) -> None:
    result = active("--strategy", "random,entropy", "--reach", "0.01", plots=True)
    assert result.exit_code == 0, result.output
    for words in (
        "photos · Simple CNAPS · resnet18 · frozen (FFE)",
        "6 to 10 labels",
        "gain",
        "1.0 %",
        "to reach",
    ):
        assert words in " ".join(result.stdout.split()), words
    assert "to reach: fewest labels with which the mean accuracy is at least 1.0 %" in " ".join(
        result.stdout.split()
    )
    assert "variation-ratio" not in result.stdout
    (record,) = ActiveView.under([tmp_path / "runs"])
    assert {entry["reach"]["accuracy"] for entry in record.rows} != {0.01}, (
        "the record is of no goal in particular"
    )
    drawn = {path.name for path in (record.path / "figures").iterdir()}
    assert drawn == {"curves.png", "curves.svg"}
    # A finished record is taken as it is, but for the accuracy to reach.
    again = lines(active("--strategy", "random,entropy", "--reach", "1", "--resume", "--json"))
    assert {line["reach"]["accuracy"] for line in again} == {1.0}
    assert [line["accuracy"] for line in again] == [entry["accuracy"] for entry in record.rows]


def test_metrics_and_variants_are_those_of_the_models(active: Active) -> None:
    once = ("--strategy", "entropy", "--runs", "1", "--rounds", "1", "--json")
    (cosine,) = lines(active(*once, "--metric", "cosine"))
    assert (cosine["model"], cosine["metric"], cosine["variant"], cosine["query_set"]) == (
        "simple", "cosine", "plain", None,
    )  # fmt: skip
    (cot,) = lines(active(*once, "--variant", "cot", "--refine-max", "unbounded", "--query-set", "5"))
    assert (cot["model"], cot["variant"], cot["query_set"]) == ("transductive", "cot", 5)
    settings = ActiveView(read_record(Path(cot["record"]))).record.config["model_config"]
    assert (settings["refine_min"], settings["refine_max"]) == (2, "unbounded")


def test_a_killed_run_goes_on_where_it_was(active: Active, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = lines(active("--json"))
    original = active_run.run_units

    def killed(*arguments: Any, **named: Any) -> Any:
        yield next(iter(original(*arguments, **named)))
        raise KeyboardInterrupt

    monkeypatch.setattr(active_run, "run_units", killed)
    assert active("--json").exit_code != 0
    left: list[int] = []

    def counted(pool: Any, plan: Any, images: Any, strategies: Any, units: Any, **named: Any) -> Any:
        left.append(len(units))
        return original(pool, plan, images, strategies, units, **named)

    monkeypatch.setattr(active_run, "run_units", counted)
    assert lines(active("--json", "--resume")) == straight
    assert left == [1]


def test_mistakes_are_named(active: Active, tmp_path: Path) -> None:
    for wrong, words in (
        (("--strategy", "bald"), "unknown strategy 'bald'; there are random"),
        (("--query-set", "5"), "--query-set is for models that refine, not for simple"),
        (("--variant", "feot", "--refine-max", "3"), "--refine-max is for models that refine, not for feot"),
        (("--rounds", "99"), "need a pool of 198 images"),
        (("--alphabet", "Greek"), "has no alphabets"),
        (("--paper",), "the paper has protocols for cifar10 and omniglot"),
        (("--adaptation", "both", "--backbone", "timm:resnet18"), "no adaptation weights"),
    ):
        result = active(*wrong)
        assert result.exit_code == 1
        assert words in " ".join(result.output.split()), result.output
    assert active("--reach", "80").exit_code == 2
    with pytest.raises(MissingDataError, match="no record of `cl-cnaps active`"):
        ActiveView.under([tmp_path])
