"""Time by part: each moment is of one part, and what was watched is put back."""

from __future__ import annotations

import pytest

from benchmarks.speed import profile, stopwatch
from benchmarks.speed.stopwatch import REST, time_by_part


class Clock:
    """Time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Worker:
    """Work in two parts, one of which calls the other."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def outer(self) -> str:
        self.clock.now += 2
        return self.inner()

    def inner(self) -> str:
        self.clock.now += 6
        return "done"


def test_a_part_does_not_count_what_another_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(stopwatch, "time", clock)
    worker = Worker(clock)

    def work() -> None:
        clock.now += 4
        assert worker.outer() == "done"

    spent = time_by_part(work, {"outer": [(worker, "outer")], "inner": [(worker, "inner")]})
    assert spent == {"outer": 2, "inner": 6, REST: 4}


@pytest.mark.parametrize("on", ["class", "object"])
def test_functions_are_put_back_even_after_an_error(on: str) -> None:
    worker = Worker(Clock())
    owner = Worker if on == "class" else worker
    before = Worker.inner

    def fails() -> None:
        worker.inner()
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        time_by_part(fails, {"inner": [(owner, "inner")]})
    assert Worker.inner is before
    assert "inner" not in vars(worker)


@pytest.mark.slow
def test_the_profile_names_all_of_the_time() -> None:
    figures = list(profile.measure(quick=True))
    for of in ("default stream:", "embedding, operators:", "training step:", "training step, operators:"):
        assert sum(one.value for one in figures if one.what.startswith(of)) == pytest.approx(100, abs=1)
    (embedding,) = (one for one in figures if one.what == "default stream: embedding")
    assert embedding.value > 30
