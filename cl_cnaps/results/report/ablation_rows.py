"""Ablations as they stand in the records of `cl-cnaps ablate`: a row for each method, an entry for each data set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.results.ablation import AblationRecord
from cl_cnaps.results.ablation_notes import notes
from cl_cnaps.results.ablation_values import query_lines, recall_by_row, refinement_grid
from cl_cnaps.results.record import Record

ABLATIONS = {
    "metric": "Metric",
    "gmm": "Gaussian mixtures",
    "transduction": "Parts of transduction",
    "refinement": "Steps of refinement",
    "shots": "Class recall against shots",
    "queries": "Accuracy against queries",
}
"""What `cl-cnaps ablate` can change, in the paper's order."""


@dataclass(frozen=True)
class Ablation:
    """One ablation. Accuracies are fractions, the paper's figures per cent."""

    record: Record
    which: str
    rows: list[dict[str, Any]]
    missing: list[str]
    """Data sets that were not there."""

    @property
    def read(self) -> AblationRecord:
        """The record, for what is computed from it in the terminal's tables too."""
        return AblationRecord(self.record)

    @property
    def title(self) -> str:
        """What was changed, in words."""
        return ABLATIONS.get(self.which, self.which)


def read_ablation(record: Record) -> Ablation:
    """The rows of a record, after a look that they have what is shown of them."""
    rows = list(record.summary["rows"])
    for row in rows:
        row["row"], row["title"], row["averages"], row["backbone"], row["adaptation"]
        for entry in row["results"]:
            entry["title"], entry["data_set"], entry["shape"], entry["queries"], entry["paper"]
            entry["accuracy"]["mean"], entry["accuracy"]["ci95"], entry["tasks"]
    missing = [str(one["title"]) for one in record.summary["missing"]]
    found = Ablation(record, str(record.summary["name"]), rows, missing)
    notes(found.read)
    if look := _LOOKS.get(found.which):
        look(found.read)
    return found


def _look_at_recall(read: AblationRecord) -> None:
    _, points = recall_by_row(read)
    if not all(points.values()):
        raise BadInputError("a row has no class recall")
    if not all(
        math.isfinite(p.recall) and math.isfinite(p.half) for of in points.values() for p in of.values()
    ):
        raise BadInputError("a class recall is no finite number")


_LOOKS: dict[str, Callable[[AblationRecord], object]] = {
    "refinement": refinement_grid,
    "shots": _look_at_recall,
    "queries": query_lines,
}
"""Ablations of which more is shown than their rows."""
