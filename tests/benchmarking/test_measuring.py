"""Bars, turns, the machine's load, and the benchmarks that are quick enough to run here."""

from __future__ import annotations

import importlib
import time
from pathlib import Path

import pytest

from benchmarks.speed.figures import Figure, figure
from benchmarks.speed.growth import grow, slope
from benchmarks.speed.machine import load, warnings_about
from benchmarks.speed.report import make_records
from benchmarks.speed.scaling import simulated
from benchmarks.speed.script import NAMES, line
from benchmarks.speed.timing import interleaved, ratio
from cl_cnaps.records.record import records_under

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "at_least", "met"),
    [(2.5, True, True), (2.4, True, False), (2.5, False, True), (2.6, False, False)],
)
def test_a_bar_is_held_or_not(value: float, at_least: bool, met: bool) -> None:
    one = Figure("head", "something", value, bar=2.5, at_least=at_least, details={"a_ms": 1})
    assert one.met is met
    assert ("MISSED" in line(one)) is not met
    assert figure(one.as_json()) == one


def test_without_a_bar_nothing_is_met_or_missed() -> None:
    assert Figure("embed", "compiling", 20.0, "s").met is None
    assert line(Figure("embed", "compiling", 20.0, "s")) == "compiling: 20 s"


def test_forms_take_turns_and_the_first_round_only_warms_up() -> None:
    done: list[str] = []
    times = interleaved({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 2)
    assert done == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_quick_work_has_more_rounds() -> None:
    done: list[str] = []

    def work() -> None:
        done.append("a")
        time.sleep(0.002)

    times = interleaved({"a": work, "b": lambda: done.append("b")}, 2, warm_up=False, at_least=0.05)
    assert done == ["a", "b"] * (len(done) // 2)
    assert 3 <= len(done) // 2 <= 25
    assert times["a"] >= 0.002


def test_a_busy_machine_and_a_nice_process_are_said() -> None:
    idle = {"load_average": 0.1, "cores": 2, "nice": 0, "other_processes": 0, "cores_taken_by_others": 0}
    assert warnings_about(idle) == []
    busy = {**idle, "nice": 5, "other_processes": 1, "cores_taken_by_others": 0.98}
    first, second = warnings_about(busy)
    assert "0.98 of 2 cores" in first
    assert "niceness 5" in second
    assert set(load()) == set(idle)


def test_a_stream_of_many_tasks_keeps_the_same_bytes_per_class() -> None:
    growth = grow(8)
    assert len(growth.seconds) == 8
    assert max(growth.bytes_per_class) == pytest.approx(min(growth.bytes_per_class), rel=0.02)


def test_every_benchmark_measures() -> None:
    for name in NAMES:
        assert callable(importlib.import_module(f"benchmarks.speed.{name}").measure)


def test_a_slope_is_not_tilted_by_a_few_interrupted_tasks() -> None:
    growing = [1 + 0.01 * i for i in range(40)]
    assert slope(growing) == pytest.approx(0.01 / 1.195, rel=1e-6)
    growing[3], growing[30] = 50.0, 50.0
    assert slope(growing) == pytest.approx(0.01 / 1.2, rel=0.05)


def test_the_ratio_of_rounds_has_its_median_and_spread() -> None:
    assert ratio([4.0, 9.0, 8.0], [2.0, 3.0, 1.0]) == (3.0, {"spread": [2.0, 8.0]})


def test_a_head_that_is_busy_makes_machines_wait() -> None:
    assert simulated(10, 60.0, 0.001, runs=400) > 0.9
    # 100 machines with runs of a second, and a head that serves ten a second: a tenth of them work.
    assert simulated(100, 1.0, 0.1, runs=2000) == pytest.approx(0.1, rel=0.1)


def test_made_up_records_are_read_as_records(tmp_path: Path) -> None:
    make_records(tmp_path, 3)
    records = list(records_under(tmp_path))
    assert len({record.id for record in records}) == 3
    assert len({record.config["seed"] for record in records}) == 3
