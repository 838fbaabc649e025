"""Ablations, from the records of `cl-cnaps ablate`: a row for each variant, a column for each data set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cl_cnaps.results.record import Record


@dataclass(frozen=True)
class Ablation:
    """One ablation: its rows as they stand in the record."""

    record: Record
    which: str
    rows: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """What was changed."""
        return self.which.capitalize()


def read_ablation(record: Record) -> Ablation:
    """The rows in a record."""
    return Ablation(record, str(record.summary["name"]), list(record.summary["rows"]))
