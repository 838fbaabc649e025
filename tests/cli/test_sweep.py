"""`cl-cnaps sweep`: what it runs, finds, prints and writes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cl_cnaps.commands.main import main
from cl_cnaps.records.record import records_under

RECIPE = """
verb = "stream"
[paper]
labels = ["tab:continual-learning-results-table"]
data = "continual.toml"
[options]
backbone = "resnet18"
backbone-weights = "random"
image-size = 16
shots = 3
queries = 2
runs = 2
head = "single"
[[grid]]
model = ["protonet", "simple"]
seed = [0, 1]
[smoke.options]
runs = 1
[smoke.grid]
model = "protonet"
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in a folder of its own, on a machine without data."""
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "no-data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path / "small.toml"


def invoke(*words: str) -> Result:
    return CliRunner().invoke(main, ["sweep", "small.toml", *words], catch_exceptions=False)


def test_several_recipes_are_read_before_the_first_runs(recipe: Path) -> None:
    others = [recipe.with_name(f"{name}.toml") for name in ("other", "wrong")]
    others[0].write_text(RECIPE.replace('["protonet", "simple"]', '"simple"').replace("[0, 1]", "2"))
    found = invoke("other.toml", "--dry-run", "--json")
    assert [line["run"] for line in lines(found)] == [
        *(f"{model} seed {seed}" for model in ("protonet", "simple") for seed in (0, 1)),
        "other",
    ]
    assert {line["status"] for line in lines(found)} == {"absent"}
    others[1].write_text(RECIPE.replace("shots", "shoots"))
    refused = CliRunner().invoke(main, ["sweep", "small.toml", "wrong.toml", "--dry-run"])
    assert refused.exit_code != 0
    assert "did you mean shots" in refused.output + str(refused.exception)
    assert "protonet" not in refused.output
    assert invoke("--keep-features", "kept").exit_code == 2, "streams share features by themselves"


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.slow
def test_runs_are_made_found_and_the_same_whatever_the_workers(recipe: Path) -> None:
    made = invoke("--workers", "2", "--json", "--only", "model=protonet")
    assert made.exit_code == 0, made.output
    first, second = lines(made)
    assert (first["run"], second["run"]) == ("seed 0", "seed 1")
    assert first["status"] == second["status"] == "made"
    (headline,) = first["headlines"]
    assert headline["of"] == "single"
    assert 0 <= headline["mean"] <= 1
    assert headline["paper"] is None, "the paper has 100 shots"
    assert first["command"].startswith("cl-cnaps stream --backbone resnet18 ")
    records = list(records_under(Path("runs")))
    assert {record.environment["command"] for record in records} == {first["command"], second["command"]}
    listing = json.loads(Path("runs/sweeps/small.json").read_text())
    assert [Path("runs", run["record"]) for run in listing["runs"]] == [
        Path(line["record"]) for line in (first, second)
    ]
    again = invoke("--workers", "1", "--threads", "1", "--json", "--only", "model=protonet", "--out", "again")
    assert [line["headlines"] for line in lines(again)] == [line["headlines"] for line in lines(made)]
    for record in records:
        other = Path("again") / record.path.relative_to("runs")
        assert (other / "accuracy.csv").read_bytes() == (record.path / "accuracy.csv").read_bytes()
    dry = invoke("--dry-run", "--workers", "1")
    assert "4 runs: 2 there before, 2 to run" in dry.output
    assert len(list(records_under(Path("runs")))) == 2


@pytest.mark.slow  # starts many processes
def test_a_run_that_fails_does_not_stop_the_others(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace('"protonet", "simple"', '"cnaps", "protonet"').replace("[0, 1]", "0"))
    result = invoke("--workers", "1")
    assert result.exit_code == 1
    assert "2 runs: 1 done, 1 FAILED" in result.output
    assert "tracebacks: runs/sweeps/small.failures.log" in result.output
    log = Path("runs/sweeps/small.failures.log").read_text()
    assert log.count("MissingDataError: no weights of CNAPS") == 2
    assert "cnaps, attempt 2 of 2" in log
    (record,) = records_under(Path("runs"))
    assert record.environment["command"].endswith("--model protonet --seed 0")
    listing = json.loads(Path("runs/sweeps/small.json").read_text())
    assert [run["record"] for run in listing["runs"]] == [None, record.path.relative_to("runs").as_posix()]
    dry = invoke("--workers", "1", "--dry-run", "--json", "--only", "model=protonet")
    assert [(line["status"], line["record"]) for line in lines(dry)] == [("found", record.path.as_posix())]
    dry = invoke("--workers", "1", "--dry-run")
    assert dry.exit_code == 1
    assert "2 runs: 1 there before, 1 FAILED" in dry.output
    assert "tracebacks" not in dry.output
    assert Path("runs/sweeps/small.failures.log").read_text() == log


@pytest.mark.slow  # starts many processes
def test_a_record_cut_short_is_made_anew(recipe: Path) -> None:
    asked = ("--workers", "1", "--smoke", "--json")
    (line,) = lines(invoke(*asked))
    summary = Path(line["record"], "summary.json")
    summary.write_text(summary.read_text()[:20])
    again = invoke(*asked)
    assert again.exit_code == 0, again.output
    assert [(one["status"], one["headlines"]) for one in lines(again)] == [("made", line["headlines"])]


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_where_it_was(recipe: Path) -> None:
    code = "from cl_cnaps.commands.main import main; main()"
    words = ["sweep", "small.toml", "--workers", "1", "--threads", "1", "--smoke", "--set", "runs=60"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 200
    while not (journals := list(Path("runs").rglob(".*.journal.jsonl"))):
        assert process.poll() is None, "it ended too soon"
        assert time.monotonic() < until, "no run has begun"
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "interrupted; to continue: cl-cnaps sweep small.toml" in said
    # More runs than fit into the seconds that an interrupted worker has.
    assert 2 <= len(journals[0].read_text().splitlines()) < 61
    listing = json.loads(Path("runs/sweeps/small-smoke.json").read_text())
    assert [run["status"] for run in listing["runs"]] == ["not run"]
    again = invoke(*words[2:], "--quiet")
    assert (again.exit_code, again.output) == (0, "")
    assert len(list(records_under(Path("runs")))) == 1
    assert not list(Path("runs").rglob(".*")), "the journal is gone, with all that was in the making"


def test_wrong_usage(recipe: Path) -> None:
    assert invoke("--address", "1.2.3.4:6379").exit_code == 2
    assert invoke("--only", "model").exit_code == 2
    result = invoke("--set", "rnus=3")
    assert result.exit_code == 1
    assert "has no option 'rnus'; did you mean runs?" in result.output
    recipe.write_text(RECIPE.replace("[smoke.options]", "[smoke.options]\nrnus = 1"))
    result = invoke("--dry-run")
    assert result.exit_code == 1
    assert "has no option 'rnus'" in result.output
    recipe.write_text("grid = []\n" + RECIPE.split("[[grid]]")[0] + "[smoke.options]\nruns = 1\n")
    assert "grid is an empty list" in invoke("--dry-run").output


def test_paths_are_shown_as_they_are(recipe: Path) -> None:
    """Square brackets, which may be in a path, mean something to the library that draws the table."""
    recipe.write_text(RECIPE.replace('"protonet", "simple"', '"protonet"').replace("[0, 1]", "0"))
    name = "[/old][bold]x[/bold]:cat:"
    result = invoke("--workers", "1", "--dry-run", "--set", f"benchmark=folder:{name}")
    assert result.exit_code == 1
    assert name in result.output.replace("\n", "").replace(" ", "")
    assert "1 run: 1 FAILED" in result.output
