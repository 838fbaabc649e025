"""What is computed from learning curves: area, gain over random, labels needed to reach an accuracy.

A curve is A[run, point]: accuracy, a fraction, with labels[point] labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.intervals import Array, estimate, interval95

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
    """Everything that is said of the curves of one task: strategy -> its figures.

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
