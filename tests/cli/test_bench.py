"""`cl-cnaps bench`: figures as lines, a table, a record, and the documentation's table made from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.speed import suite
from cl_cnaps.commands.main import main
from cl_cnaps.records.record import records_under
from cl_cnaps.report import speed
from cl_cnaps.report.generated import filled
from cl_cnaps.report.speed import (
    class_memory_table,
    scaling_table,
    speed_bars,
    speed_sentence,
    speed_table,
    write_speed_record,
)

ROOT = Path(__file__).parents[2]
FIGURE = {
    "benchmark": "head",
    "what": "all cases",
    "value": 21.5,
    "unit": "times",
    "bar": 20.0,
    "at_least": True,
    "details": {},
    "met": True,
}
STATE = {"load_average": 0.2, "cores": 2, "nice": 0, "other_processes": 0, "cores_taken_by_others": 0.0}


@pytest.mark.slow
def test_the_quick_classifier_benchmark_as_json(tmp_path: Path) -> None:
    arguments = ["bench", "--only", "head", "--quick", "--threads", "1", "--json", "--out", str(tmp_path)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    rows = [json.loads(row) for row in result.stdout.splitlines()]
    assert {row["benchmark"] for row in rows} == {"head"}
    (mean,) = (row for row in rows if "geometric mean" in row["what"])
    assert mean["value"] > 0
    (record,) = records_under(tmp_path)
    assert record.config == {"benchmarks": ["head"], "quick": True, "threads": 1}
    assert record.summary["figures"] == rows
    assert len(record.table("figures")) == len(rows)
    assert set(record.environment["load"]) == {"head", "end"}


def test_a_benchmark_that_fails_is_named_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(f"#!{sys.executable}\nraise SystemExit('no such luck')\n")
    broken.chmod(0o755)
    monkeypatch.setattr(suite.sys, "executable", str(broken))
    result = CliRunner().invoke(main, ["bench", "--only", "head", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "head failed: no such luck" in result.output
    assert not list(records_under(tmp_path))


def test_the_table_says_when_on_what_and_under_which_load(tmp_path: Path) -> None:
    busy = {**STATE, "other_processes": 1, "cores_taken_by_others": 0.9}
    load = {"head": STATE, "end": busy}
    missed = {**FIGURE, "what": "one case", "value": 2.0, "met": False}
    write_speed_record(tmp_path, [FIGURE, missed], quick=False, threads=2, load=load)
    write_speed_record(tmp_path, [FIGURE], quick=True, threads=2, load=load)
    table = speed_table(tmp_path)
    assert "| head: all cases | 21.5 times | at least 20 | met |" in table
    assert "| head: one case | 2 times | at least 20 | **missed** |" in table
    assert "other processes took up to 0.9 of" in table
    assert table.count("all cases") == 1, "quick runs are not for the table"
    assert speed_bars(tmp_path).count("| met, 20") == 1
    said = speed_sentence(tmp_path)
    assert said == "1 of 2 bars are met; missed: head: one case (2, bar at least 20)."


def test_of_a_benchmark_measured_twice_the_table_has_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [FIGURE, {**FIGURE, "benchmark": "embed", "what": "folded"}]
    days = iter(("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"))
    described = speed.describe_environment
    monkeypatch.setattr(
        speed, "describe_environment", lambda extra: {**described(extra), "finished": next(days)}
    )
    for figures in ([{**FIGURE, "value": 30.0}], both):
        write_speed_record(tmp_path, figures, quick=False, threads=2, load={"end": STATE})
    assert {record.name for record in records_under(tmp_path)} == {"head", "head-embed"}
    table = speed_table(tmp_path)
    assert "| head: all cases | 30 times" in table
    assert table.count("all cases") == 1
    assert "| embed: folded | 21.5 times" in table


def test_what_figures_of_scaling_are_worked_out_from(tmp_path: Path) -> None:
    details = {"head_ms": 2.5, "assumed": {"machines": 1000}}
    busy = {
        **FIGURE,
        "benchmark": "scaling",
        "what": "time at work",
        "value": 70.8,
        "unit": "%",
        "details": details,
    }
    write_speed_record(tmp_path, [busy], quick=False, threads=2, load={"end": STATE})
    assert "| time at work | 70.8 % | head_ms 2.5, machines 1000 |" in scaling_table(tmp_path)


@pytest.mark.parametrize("part", [speed_table, speed_bars, speed_sentence, scaling_table])
def test_no_record_names_the_command_that_makes_one(part: Callable[[Path], str], tmp_path: Path) -> None:
    assert "cl-cnaps bench --out" in part(tmp_path)


def test_the_documented_table_is_that_of_the_committed_record() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert filled(page, ROOT / "results") == page


def test_bench_needs_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cl_cnaps.__file__", str(tmp_path / "cl_cnaps" / "__init__.py"))
    result = CliRunner().invoke(main, ["bench", "--quick"])
    assert result.exit_code == 1
    assert "checkout" in result.output


def test_what_few_directions_lose_is_held_against_its_bar(tmp_path: Path) -> None:
    assert "class_memory.csv" in class_memory_table(tmp_path)
    header = "benchmark,classes,shots,directions,shortlist,bytes_per_class,accuracy,agreement"
    rows = ["a,5,9,all,none,4000,0.8,1.0", "a,5,9,32,none,400,0.797,0.9"]
    rows += ["b,5,9,all,none,4000,0.8,1.0", "b,5,9,32,none,400,0.79,0.9"]
    (tmp_path / "class_memory.csv").write_text("\n".join([header, *rows]))
    table = class_memory_table(tmp_path)
    assert "| 5 of a | 9 | 32 | none | 400 | 79.70 | 90.00 |" in table
    assert "a -0.30 (met), b -1.00 (**missed**)" in table
