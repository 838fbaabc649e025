"""Curves: accuracy against labels with its area and gain over random, and class recall against shots.

A learning curve is A[run, point]: accuracy, a fraction, with labels[point] labels.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.intervals import Z95, Array, estimate, interval95

BASELINE = "random"
"""The strategy that others are compared with."""


def area(labels: Sequence[int], accuracy: Array) -> Array:
    """Per run: area under the curve by trapezoids over the labels, divided by their range; a mean accuracy."""
    if len(labels) < 2 or accuracy.ndim != 2 or accuracy.shape[1] != len(labels):
        raise BadInputError(
            f"an area needs runs x points with a number of labels for each of two or more points, not "
            f"{accuracy.shape} with {len(labels)}"
        )
    return np.asarray(np.trapezoid(accuracy, labels, axis=1) / (labels[-1] - labels[0]))


def labels_to_reach(labels: Sequence[int], mean: Sequence[float], accuracy: float) -> int | None:
    """The fewest labels with which the mean over runs is at least `accuracy`; None if it never is."""
    return next((n for n, value in zip(labels, mean, strict=True) if value >= accuracy), None)


def curve_figures(
    labels: Sequence[int], curves: Mapping[str, Array], reach: float | None = None
) -> dict[str, dict[str, Any]]:
    """The figures of the curves of one task, by strategy.

    `gain` compares areas with random's run by run, on the same images. `reach` is the accuracy to reach; by default
    what random ends with (without it, the lowest end of all).
    """
    ends = {name: float(accuracy[:, -1].mean()) for name, accuracy in curves.items()}
    goal = ends.get(BASELINE, min(ends.values())) if reach is None else reach
    areas = {name: area(labels, accuracy) for name, accuracy in curves.items()}
    figures = {}
    for name, accuracy in curves.items():
        mean, half, whole = accuracy.mean(axis=0), interval95(accuracy), estimate(areas[name])
        gain = None
        if BASELINE in areas and name != BASELINE:
            difference = estimate(areas[name] - areas[BASELINE])
            gain = {"mean": difference.mean, "ci95": difference.ci95}
        figures[name] = {
            "labels": list(labels),
            "accuracy": {
                "mean": mean.tolist(),
                "ci95": [None] * len(labels) if half is None else half.tolist(),
            },
            "area": whole.mean,
            "area_ci95": whole.ci95,
            "gain": gain,
            "reach": {"accuracy": goal, "labels": labels_to_reach(labels, mean.tolist(), goal)},
        }
    return figures


_EDGES = (1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31, 51, 101, math.inf)
"""Shots are taken together from one edge to the next: alone while there are few, wider where classes get rare."""
_FEWEST_CLASSES = 20
"""A mean over fewer classes is noise, and is not shown where there are better ones."""


@dataclass(frozen=True)
class RecallPoint:
    """Classes of similar shots: their mean shots, and their recall with half of its interval, in per cent."""

    words: str
    """Which shots: `3`, `6-7`, `101+`."""
    shots: float
    recall: float
    half: float


def recall_rows(classes: Iterable[tuple[int, int, int]]) -> Iterator[dict[str, Any]]:
    """Return for every number of shots the classes of all tasks that had so many, and their recall.

    Of each class come its shots, its queries and how many of these were right. `recall` is the mean over the classes
    and `std` its spread (1/n).
    """
    by_shots: defaultdict[int, list[float]] = defaultdict(list)
    for shots, queries, correct in classes:
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
