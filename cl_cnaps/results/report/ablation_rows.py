"""Ablations as they stand in the records of `cl-cnaps ablate`: a row for each method, an entry for each data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cl_cnaps.results.record import Record

ABLATIONS = {
    "metric": "Metric",
    "gmm": "Gaussian mixtures",
    "transduction": "Parts of transduction",
    "refinement": "Steps of refinement",
    "shots": "Accuracy against shots",
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
    def title(self) -> str:
        """What was changed, in words."""
        return ABLATIONS.get(self.which, self.which)


def read_ablation(record: Record) -> Ablation:
    """The rows of a record, after a look that they have what is shown of them."""
    rows = list(record.summary["rows"])
    for row in rows:
        row["title"], row["averages"], row["backbone"], row["adaptation"]
        for entry in row["results"]:
            entry["title"], entry["data_set"], entry["shape"], entry["queries"], entry["paper"]
            entry["accuracy"]["mean"], entry["accuracy"]["ci95"], entry["tasks"]
    missing = [str(one["title"]) for one in record.summary["missing"]]
    return Ablation(record, str(record.summary["name"]), rows, missing)
