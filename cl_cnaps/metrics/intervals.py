"""95 % intervals, one formula each (Student's t over runs, the normal one over tasks), and ranks that respect them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit  # type: ignore[import-untyped, unused-ignore]

from cl_cnaps.errors import BadInputError

Array = NDArray[np.float64]
Z95 = 1.96
"""Standard deviations on either side that hold 95 % of a normal distribution, as the paper rounds it."""


@dataclass(frozen=True)
class Accuracy:
    """A mean over tasks and half the width of its 95 % interval (None for one task); fractions of 1."""

    mean: float
    ci95: float | None


@dataclass(frozen=True)
class Estimate:
    """A mean over runs, half the width of its 95 % interval (None for a single run), and the runs."""

    mean: float
    ci95: float | None
    per_run: tuple[float, ...]


def interval95(values: Array) -> Array | None:
    """Return half the 95 % interval of the mean over runs, the first axis (Student's t, n - 1); None for one run."""
    runs = len(values)
    if runs == 1:
        return None
    return np.asarray(stdtrit(runs - 1, 0.975) * values.std(axis=0, ddof=1) / math.sqrt(runs))


def estimate(per_run: Array) -> Estimate:
    """Return mean and interval of one figure over runs."""
    half = interval95(per_run)
    return Estimate(float(per_run.mean()), None if half is None else float(half), tuple(map(float, per_run)))


def mean_accuracy(per_task: Sequence[float]) -> Accuracy:
    """Return the mean, and 1.96 * std / sqrt(tasks) as the paper and Meta-Dataset have it (std with 1/n)."""
    if not len(per_task):
        raise BadInputError("a mean accuracy needs at least one task")
    values = np.asarray(per_task, dtype=np.float64)
    half = Z95 * float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else None
    return Accuracy(float(values.mean()), half)


def mean_difference(gaps: Sequence[Array]) -> tuple[float, float | None]:
    """Return the mean over data sets of paired differences of tasks, and half of its interval.

    `gaps` has the differences of each data set; the interval is None where one has a single task.
    """
    mean = float(np.mean([gap.mean() for gap in gaps]))
    if any(len(gap) < 2 for gap in gaps):
        return mean, None
    variance = sum(float(gap.var(ddof=1)) / len(gap) for gap in gaps)
    return mean, Z95 * math.sqrt(variance) / len(gaps)


Score = tuple[float, float]
"""Mean and half of the 95 % interval, in the same unit for all methods."""

Scores = Mapping[str, Mapping[str, Score]]
"""Method -> data set -> score; a method may lack some data sets."""


def rank(method: str, data_set: str, scores: Scores) -> int:
    """The rank of one method among those that have a score on the data set; 1 is best (`tab:results:meta-dataset-2`).

    It is one more than the number of methods that are significantly better there: better by more than the root of the
    sum of the squares of the two 95 % intervals. The paper does not say how it treats differences within the intervals;
    of the usual ways, this is the one whose ranks come nearest to those it prints.
    """
    mean, half = scores[method][data_set]
    rivals = [scores[m][data_set] for m in scores if m != method and data_set in scores[m]]
    return 1 + sum(other - mean > math.hypot(half, other_half) for other, other_half in rivals)


def average_rank(method: str, data_sets: Collection[str], scores: Scores) -> float | None:
    """The mean rank over those of the data sets on which the method has a score; None if it has none."""
    ranks = [rank(method, data_set, scores) for data_set in data_sets if data_set in scores[method]]
    return sum(ranks) / len(ranks) if ranks else None
