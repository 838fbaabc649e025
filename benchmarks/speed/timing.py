"""Timing several ways of doing one thing so that a busy machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(
    forms: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True, at_least: float = 0.0
) -> dict[str, float]:
    """Median seconds of each form, one after the other in every round; the first round may warm up.

    Work that is quick has more rounds, until they have taken `at_least` seconds: one of a few milliseconds says little.
    """
    taken: dict[str, list[float]] = {name: [] for name in forms}
    if warm_up:
        for work in forms.values():
            work()
    start, number = time.perf_counter(), 0
    while number < rounds or time.perf_counter() - start < at_least:
        for name, work in forms.items():
            taken[name].append(seconds(work))
        number += 1
    return {name: statistics.median(spent) for name, spent in taken.items()}


def milliseconds(times: Mapping[str, float]) -> dict[str, float]:
    """For the details of a figure."""
    return {f"{name}_ms": round(1000 * value, 2) for name, value in times.items()}
