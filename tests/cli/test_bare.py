"""Verbs on a machine without any data: on what the installation has, and the first line names it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cl_cnaps.commands.main import main
from cl_cnaps.few_shot.ablations import targets_of
from cl_cnaps.few_shot.targets import default_targets

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
INSTEAD = "characters that are drawn here (glyphs) and the digits of the installation (mnist) instead"


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    result = CliRunner().invoke(main, [*words, *SMALL])
    assert result.exit_code == 0, result.output
    return result


def test_evaluate_without_a_target() -> None:
    result = run("evaluate", "--tasks", "1", "--ways", "2", "--shots", "1", "--no-plots")
    assert result.stdout.splitlines()[0] == f"No data set of Meta-Dataset under CL_CNAPS_DATA: on {INSTEAD}."
    assert {path.name for path in Path("runs/evaluate").iterdir()} == {"glyphs-simple", "mnist-simple"}
    assert default_targets() == ("glyphs", "mnist")


def test_meta_dataset_names_what_is_missing_first() -> None:
    result = run("evaluate", "meta-dataset", "--tasks", "1", "--no-plots")
    first, *others = result.stdout.splitlines()
    assert first.startswith(
        "1 of 13 data sets of Meta-Dataset: MNIST. Missing: ImageNet, Omniglot, Aircraft, Birds"
    )
    assert "average" not in "".join(others), "of one data set"
    as_json = run("evaluate", "meta-dataset", "--tasks", "1", "--json", "--no-plots")
    assert as_json.stderr.splitlines()[0] == first
    assert all(json.loads(line) for line in as_json.stdout.splitlines())


def test_active_without_a_source() -> None:
    words = [
        "--initial",
        "1",
        "--per-round",
        "1",
        "--rounds",
        "1",
        "--runs",
        "1",
        "--pool",
        "2",
        "--test",
        "1",
        "--no-plots",
    ]
    first = run("active", *words).stdout.splitlines()[0]
    assert first.startswith(
        "No CIFAR-10 under CL_CNAPS_DATA: on the digits of the installation (mnist) instead."
    )
    assert "--source cifar10 fetches it" in first


def test_ablate_plot_and_report() -> None:
    result = run("ablate", "shots", "--tasks", "1")
    assert result.stdout.splitlines()[0] == f"No data set of Meta-Dataset under CL_CNAPS_DATA: on {INSTEAD}."
    assert "Glyphs" in result.stdout
    for words in (("plot", "runs"), ("report", "runs", "--out", "site")):
        drawn = CliRunner().invoke(main, words)
        assert drawn.exit_code == 0, drawn.output


def test_what_ablations_are_of() -> None:
    (both,) = targets_of("metric", (), None)
    assert [one.name for one in both.sets] == ["mnist", "glyphs"]
    (drawn,) = targets_of("metric", ("glyphs",), None)
    assert [one.name for one in drawn.sets] == ["glyphs"]
    assert drawn.sets[0].tasks_of.classes.groups is not None, "a task is of one script"
    (digits,) = targets_of("queries", (), None)
    assert [one.name for one in digits.sets] == ["mnist"]
