"""How long things take, in turns."""

from __future__ import annotations

import time

from cl_cnaps.benchmarking.timing import interleaved


def test_forms_take_turns_and_quick_ones_have_more_rounds() -> None:
    calls: list[str] = []

    def form(name: str) -> None:
        calls.append(name)
        time.sleep(0.002)

    times = interleaved({"a": lambda: form("a"), "b": lambda: form("b")}, 2, at_least=0.05)
    assert calls[:4] == ["a", "b", "a", "b"]
    assert calls.count("a") == calls.count("b")
    assert len(calls) > 6
    assert min(times.values()) >= 0.002
    calls.clear()
    interleaved({"a": lambda: form("a")}, 2)
    assert calls == ["a"] * 3
    calls.clear()
    interleaved({"a": lambda: form("a")}, 2, warm_up=False)
    assert calls == ["a"] * 2
