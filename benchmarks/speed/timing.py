"""Timing several ways of doing one thing so that a busy machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def turns(
    forms: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True, at_least: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of each form in every round, one form after the other; the first round may warm up.

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
    return taken


def interleaved(
    forms: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True, at_least: float = 0.0
) -> dict[str, float]:
    """Median seconds of each form; the arguments are those of `turns`."""
    taken = turns(forms, rounds, warm_up=warm_up, at_least=at_least)
    return {name: statistics.median(spent) for name, spent in taken.items()}


def ratio(over: Sequence[float], under: Sequence[float]) -> tuple[float, dict[str, list[float]]]:
    """Median of the ratios of rounds, and their spread for the details of a figure."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return round(statistics.median(ratios), 3), {"spread": [round(min(ratios), 2), round(max(ratios), 2)]}


def milliseconds(times: Mapping[str, float]) -> dict[str, float]:
    """For the details of a figure."""
    return {f"{name}_ms": round(1000 * value, 2) for name, value in times.items()}
