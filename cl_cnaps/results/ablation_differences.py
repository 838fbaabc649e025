"""How far the rows of an ablation are apart, task by task: all of them have seen the same tasks.

Tasks differ far more than methods do, so that intervals of two rows overlap where every task agrees on which is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cl_cnaps.results.ablation import AblationRecord
from cl_cnaps.results.few_shot import EPISODES

BASES: Mapping[str, str] = {
    "metric": "mahalanobis",
    "gmm": "simple",
    "transduction": "simple",
    "refinement": "none",
    "shots": "simple",
}
"""The row that others are compared with; where the numbers of queries vary there is none."""


@dataclass(frozen=True)
class Difference:
    """Of a row's accuracy to the base's on the same tasks, averaged over data sets; fractions of 1."""

    row: str
    title: str
    mean: float
    half: float | None
    """Of the 95 % interval over tasks; None where a data set has a single one."""
    by_data_set: Mapping[str, float]


def base_of(record: AblationRecord) -> str | None:
    """The title of the row that others are compared with, if there is one."""
    key = BASES.get(record.which)
    return next((row["title"] for row in record.rows if row["row"] == key), None)


def differences(record: AblationRecord) -> list[Difference]:
    """Of every row whose tasks are listed, but the base, in their order; none where nothing is the base."""
    if base_of(record) is None:
        return []
    tasks: dict[str, dict[str, dict[str, float]]] = {}
    for line in record.record.table(EPISODES):
        of_row = tasks.setdefault(line["row"], {})
        of_row.setdefault(line["data_set"], {})[line["episode"]] = float(line["accuracy"])
    base = tasks[BASES[record.which]]
    return [
        _difference(row["row"], row["title"], tasks[row["row"]], base)
        for row in record.rows
        if row["row"] != BASES[record.which] and row["row"] in tasks
    ]


def _difference(
    row: str, title: str, mine: Mapping[str, Mapping[str, float]], base: Mapping[str, Mapping[str, float]]
) -> Difference:
    gaps = {
        name: np.array([accuracy - base[name][task] for task, accuracy in of.items()])
        for name, of in mine.items()
    }
    means = {name: float(gap.mean()) for name, gap in gaps.items()}
    half = None
    if all(len(gap) > 1 for gap in gaps.values()):
        variance = sum(float(gap.var(ddof=1)) / len(gap) for gap in gaps.values())
        half = 1.96 * variance**0.5 / len(gaps)
    return Difference(row, title, float(np.mean(list(means.values()))), half, means)
