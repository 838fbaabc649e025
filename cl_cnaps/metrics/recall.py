"""Class recall against shots: how often queries of a class are recognised, by its number of support images."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from cl_cnaps.metrics.intervals import Z95

_EDGES = (1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31, 51, 101, math.inf)
"""Shots are taken together from one edge to the next: alone while there are few, wider where classes get rare."""
_FEWEST_CLASSES = 20
"""A mean over fewer classes is noise, and is not shown where there are better ones."""


class Score(Protocol):
    """A scored task, class by class."""

    @property
    def shots(self) -> tuple[int, ...]:
        """Support images of each class."""

    @property
    def queries(self) -> tuple[int, ...]:
        """Query images of each class."""

    @property
    def correct(self) -> tuple[int, ...]:
        """Queries of each class that were classified right."""


@dataclass(frozen=True)
class RecallPoint:
    """Classes of similar shots: their mean shots, and their recall with half of its interval, in per cent."""

    words: str
    """Which shots: `3`, `6-7`, `101+`."""
    shots: float
    recall: float
    half: float


def recall_rows(scores: Iterable[Score]) -> Iterator[dict[str, Any]]:
    """For every number of shots: the classes of all tasks that had so many, and their recall.

    `recall` is the mean over those classes and `std` its spread (1/n).
    """
    by_shots: defaultdict[int, list[float]] = defaultdict(list)
    for one in scores:
        for shots, queries, correct in zip(one.shots, one.queries, one.correct, strict=True):
            by_shots[shots].append(correct / queries)
    for shots, recalls in sorted(by_shots.items()):
        mean = math.fsum(recalls) / len(recalls)
        yield {
            "shots": shots,
            "classes": len(recalls),
            "recall": mean,
            "std": math.sqrt(math.fsum((recall - mean) ** 2 for recall in recalls) / len(recalls)),
        }


def recall_points(rows: Sequence[Mapping[str, Any]]) -> list[RecallPoint]:
    """Mean recall and its interval over classes, for shots taken together."""
    bins = [
        (low, high, [row for row in rows if low <= int(row["shots"]) < high])
        for low, high in pairwise(_EDGES)
    ]
    counts = [sum(int(row["classes"]) for row in mine) for _, _, mine in bins]
    fewest = min(_FEWEST_CLASSES, max(counts, default=1))
    return [
        _point(_words(low, high), mine)
        for (low, high, mine), count in zip(bins, counts, strict=True)
        if mine and count >= fewest
    ]


def _point(words: str, rows: Sequence[Mapping[str, Any]]) -> RecallPoint:
    classes, shots, recall, std = (
        np.array([float(row[key]) for row in rows]) for key in ("classes", "shots", "recall", "std")
    )
    mean = float(np.average(recall, weights=classes))
    variance = float(np.average(std**2 + (recall - mean) ** 2, weights=classes))
    half = Z95 * math.sqrt(variance / classes.sum())
    return RecallPoint(words, float(np.average(shots, weights=classes)), 100 * mean, 100 * half)


def _words(low: float, high: float) -> str:
    if math.isinf(high):
        return f"{low}+"
    return str(low) if high == low + 1 else f"{low}-{high - 1}"
