"""`cl-cnaps ablate`: rows, records, what is reused and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from few_shot.coloured import coloured_folders

from cl_cnaps.commands.main import main
from cl_cnaps.few_shot.ablations import ABLATIONS
from cl_cnaps.names import ABLATIONS as NAMES
from cl_cnaps.records.record import read_record
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.generated import ablation_markdown
from cl_cnaps.report.paper import ablation_rows, meta_dataset_rows

SMALL = (
    "--backbone",
    "timm:test_resnet",
    "--backbone-weights",
    "random",
    "--image-size",
    "32",
    "--workers",
    "0",
)


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with a data set of either domain, and a cache, that are nobody's."""
    root = tmp_path / "root"
    coloured_folders(root / "dtd", 5, 12, noise=90)
    coloured_folders(root / "cifar10" / "test", 5, 12, noise=90)
    monkeypatch.setenv("CL_CNAPS_DATA", str(root))
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))
    return root


def invoke(tmp_path: Path, *arguments: object) -> Result:
    words = [str(argument) for argument in (*arguments, *SMALL, "--out", tmp_path / "runs")]
    return CliRunner().invoke(main, words)


def rows(tmp_path: Path, *arguments: object) -> dict[str, dict[str, Any]]:
    result = invoke(tmp_path, "ablate", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["row"]: row for row in map(json.loads, result.stdout.splitlines())}


def accuracies(row: dict[str, Any]) -> list[float]:
    return [entry["accuracy"]["mean"] for entry in row["results"]]


SOME = ("--sources", "dtd,cifar10", "--tasks", 3)


def test_metrics(tmp_path: Path) -> None:
    found = rows(tmp_path, "metric", *SOME)
    assert list(found) == ["dot", "cosine", "l1", "euclidean", "mahalanobis", "root-riemannian"]
    assert accuracies(found["root-riemannian"]) == accuracies(found["mahalanobis"])
    row = found["cosine"]
    assert (row["ablation"], row["model"], row["metric"], row["variant"]) == (
        "metric",
        "simple",
        "cosine",
        "plain",
    )
    assert [entry["data_set"] for entry in row["results"]] == ["dtd", "cifar10"]
    assert row["results"][0]["paper"]["mean"] == 69.7
    assert row["results"][1]["paper"] is None
    assert found["root-riemannian"]["results"][1]["paper"]["mean"] == 62.4
    assert set(row["averages"]) == {"in", "out", "all"}
    record = AblationView(read_record(Path(row["record"])))
    assert record.path.parent == tmp_path / "runs" / "ablate" / "metric"
    episodes = record.record.table("episodes")
    assert len(episodes) == 6 * 2 * 3
    mine = [float(e["accuracy"]) for e in episodes if (e["row"], e["data_set"]) == ("cosine", "dtd")]
    assert sum(mine) / 3 == pytest.approx(accuracies(row)[0])
    table = ablation_markdown(record)
    assert "| Cosine Similarity | " in table
    assert "tab:results:metric-ablations-2 repeats -1" in table
    assert "69.7 ± 0.7" in table


def test_frozen_features_leave_one_half_of_transduction(tmp_path: Path) -> None:
    found = rows(tmp_path, "transduction", *SOME)
    assert list(found) == ["feot", "cot", "simple", "transductive"]
    assert accuracies(found["feot"]) == accuracies(found["simple"])
    assert accuracies(found["cot"]) == accuracies(found["transductive"])
    result = invoke(tmp_path, "ablate", "transduction", *SOME, "--resume")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    for words in (
        "COT",
        "paper",
        "avg. all",
        "Transductive+ is left out",
        "FEOT is Simple CNAPS",
        "record: ",
    ):
        assert words in said, words


def test_cells_of_an_evaluation_are_reused(tmp_path: Path) -> None:
    asked = ("--variable", "--tasks", 3, "--model", "transductive", "--no-plots")
    done = invoke(tmp_path, "evaluate", "dtd", *asked)
    assert done.exit_code == 0, done.output
    found = rows(tmp_path, "gmm", *SOME)
    (taken,) = found["transductive"]["reused"]
    assert taken.startswith("evaluate/dtd-transductive/")
    assert not any(found[key]["reused"] for key in ("gmm", "gmm-em", "simple"))
    assert [entry["domain"] for entry in found["transductive"]["results"]] == ["in", "out"]
    fresh = rows(tmp_path / "elsewhere", "gmm", *SOME)
    for key, row in found.items():
        assert accuracies(row) == accuracies(fresh[key]), key


def test_cells_of_another_ablation_are_reused(tmp_path: Path) -> None:
    earlier = rows(tmp_path, "gmm", *SOME)
    found = rows(tmp_path, "transduction", *SOME)
    name = "/".join(Path(earlier["simple"]["record"]).parts[-3:])
    assert found["simple"]["reused"] == found["transductive"]["reused"] == [name]
    assert not found["feot"]["reused"]
    fresh = rows(tmp_path / "elsewhere", "transduction", *SOME)
    for key, row in found.items():
        assert accuracies(row) == accuracies(fresh[key]), key
    tasks, alone = (
        [{**one} for one in AblationView(read_record(Path(of["simple"]["record"]))).record.table("episodes")]
        for of in (found, fresh)
    )
    assert tasks == alone
    # Class recall is kept by one ablation alone: what has none cannot stand for it.
    assert not any(row["reused"] for row in rows(tmp_path, "shots", *SOME).values())


def test_damaged_records_are_passed_over(tmp_path: Path) -> None:
    asked = ("--variable", "--tasks", 3, "--no-plots", "--json")
    done = json.loads(invoke(tmp_path, "evaluate", "dtd", *asked).stdout)
    measured = rows(tmp_path, "gmm", *SOME)
    assert measured["simple"]["reused"]
    for file in (tmp_path / "runs").rglob("summary.json"):
        file.write_text("{")
    again = rows(tmp_path, "gmm", *SOME, "--resume")
    assert not again["simple"]["reused"]
    assert accuracies(again["simple"]) == accuracies(measured["simple"])
    assert accuracies(again["simple"])[0] == done["accuracy"]["mean"]


@pytest.mark.slow
def test_the_refinement_grid(tmp_path: Path) -> None:
    found = rows(tmp_path, "refinement", *SOME)
    assert {"simple", "none", "free", "2-4", "0-1", "4-8"} < set(found)
    assert accuracies(found["none"]) == accuracies(found["simple"])
    assert found["free"]["refine"] == {"min": 0, "max": "unbounded"}
    record = AblationView(read_record(Path(found["2-4"]["record"])))
    assert {file.name for file in (record.path / "figures").iterdir()} == {"grid.png", "grid.svg"}
    assert "| No Min/Max | " in ablation_markdown(record)
    bounds = ("--refine-min", 0, "--refine-max", "unbounded")
    alone = invoke(
        tmp_path, "evaluate", "dtd", "--variable", "--tasks", 3, "--variant", "cot", *bounds, "--json"
    )
    assert alone.exit_code == 0, alone.output
    line = json.loads(alone.stdout)
    assert line["accuracy"]["mean"] == accuracies(found["free"])[0]
    assert (line["model"], line["variant"], line["paper"]["mean"]) == ("transductive", "cot", 68.5)


def test_shots(tmp_path: Path) -> None:
    found = rows(tmp_path, "shots", *SOME)
    record = AblationView(read_record(Path(found["simple"]["record"])))
    assert {row["row"] for row in record.record.table("recall")} == {"simple", "transductive"}
    assert {file.name for file in (record.path / "figures").iterdir()} == {"recall.png", "recall.svg"}
    assert "class recall over all data sets" in ablation_markdown(record).lower()


def test_queries(tmp_path: Path, own_places: Path) -> None:
    coloured_folders(own_places / "mini_imagenet" / "test", 5, 55)
    found = rows(tmp_path, "queries", "--tasks", 1)
    results = found["transductive"]["results"]
    assert [entry["queries"] for entry in results] == [10, 20, 30, 40, 50] * 2
    assert found["transductive"]["refine"] == {"min": 2, "max": 10}
    record = AblationView(read_record(Path(found["simple"]["record"])))
    assert {file.name for file in (record.path / "figures").iterdir()} == {"queries.png", "queries.svg"}
    assert "Simple, mini-ImageNet 5-way 1-shot" in ablation_markdown(record)


def test_mistakes_are_named(tmp_path: Path) -> None:
    for arguments, says in (
        (
            ("metric", "--sources", "imagenet"),
            "'imagenet' is no data set of Meta-Dataset: ilsvrc_2012, omniglot",
        ),
        (("metric", "--weights", "mine.safetensors"), "is not ROW=FILE"),
        (("metric", "--weights", "feot=none"), "has no row 'feot' to give weights to"),
        (("metric", "--adaptation", "film"), "no adaptation weights of simple"),
        (
            ("queries", "--sources", "mini-imagenet", "--specs", tmp_path),
            "but mini-imagenet has a test split of its own",
        ),
        (("everything",), "is not one of 'adaptation', 'metric', 'gmm'"),
    ):
        result = invoke(tmp_path, "ablate", *arguments)
        assert result.exit_code in (1, 2), arguments
        assert says in " ".join(result.output.split()), result.output
    assert not (tmp_path / "runs").exists()


def test_the_names_in_the_help_are_those_of_the_registry() -> None:
    assert tuple(ABLATIONS) == tuple(NAMES)


def test_the_papers_rows_are_those_of_its_other_tables() -> None:
    """Simple and Transductive CNAPS stand in several tables, each time with the same numbers."""
    few_shot = meta_dataset_rows()
    for which in ("gmm", "transduction", "refinement"):
        of = ablation_rows(which)
        assert set(of) <= {method.key for method in ABLATIONS[which]}
        for row, name in (
            ("simple", "Simple CNAPS"),
            ("transductive", "Transductive CNAPS"),
            ("2-4", "Transductive CNAPS"),
        ):
            if row in of:
                cells = {data_set: (cell.mean, cell.interval) for data_set, cell in of[row].items()}
                assert cells == few_shot[name]
    assert ablation_rows("refinement")["none"].keys() == ablation_rows("transduction")["feot"].keys()
    assert ablation_rows("shots") == {}
    assert len(ablation_rows("metric")["dot"]) == 8
    assert len(ablation_rows("metric")["root-riemannian"]) == 13
