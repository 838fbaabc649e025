"""Mean accuracy over tasks with its 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class Accuracy:
    """A mean over tasks and half the width of its 95 % interval (None for one task); fractions of 1."""

    mean: float
    ci95: float | None


def mean_accuracy(per_task: Sequence[float]) -> Accuracy:
    """The mean, and 1.96 * std / sqrt(tasks) as the paper and Meta-Dataset have it (std with 1/n)."""
    if not len(per_task):
        raise BadInputError("a mean accuracy needs at least one task")
    values = np.asarray(per_task, dtype=np.float64)
    half = 1.96 * float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else None
    return Accuracy(float(values.mean()), half)
