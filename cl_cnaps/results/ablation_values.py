"""What the tables of ablations are made of: the same numbers for the terminal, in Markdown and on pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cl_cnaps.evaluation.ablations import GRID_MAX, GRID_MIN
from cl_cnaps.results.ablation import AblationRecord, Row
from cl_cnaps.results.few_shot_recall import RecallPoint, recall_points
from cl_cnaps.results.few_shot_tables import data_set_words

PRINTED: Mapping[str, tuple[str, ...]] = {"refinement": ("simple", "none", "free", "2-4")}
"""Rows of the paper's table, where the ablation has more."""


@dataclass(frozen=True)
class QueryLine:
    """A row on tasks of one data set and shape."""

    row: str
    """The row's title."""
    tasks: str
    accuracy: Mapping[int, Mapping[str, Any]]
    """By queries of each class: mean and ci95, fractions of 1."""

    @property
    def words(self) -> str:
        """The row and its tasks."""
        return f"{self.row}, {self.tasks}"


def printed_rows(record: AblationRecord) -> list[Row]:
    """The rows that the paper's table has: all but the cells of a grid."""
    printed = PRINTED.get(record.which)
    return [row for row in record.rows if printed is None or row["row"] in printed]


def refinement_grid(record: AblationRecord) -> tuple[list[int], list[int], list[list[float | None]]]:
    """Least steps, most steps, and the mean accuracy over data sets for each pair; None where least exceeds most."""
    rows = {row["row"]: row["averages"]["all"]["accuracy"] for row in record.rows}
    least, most = list(GRID_MIN), list(GRID_MAX)
    return least, most, [[rows.get(f"{low}-{high}") for high in most] for low in least]


def recall_by_row(record: AblationRecord) -> tuple[list[str], dict[str, dict[str, RecallPoint]]]:
    """The bins of shots in words, and for each row's title its class recall over all data sets by bin."""
    points = {
        row["title"]: {point.words: point for point in recall_points(record.recall(row["row"]))}
        for row in record.rows
    }
    return list(dict.fromkeys(words for of_row in points.values() for words in of_row)), points


def query_lines(record: AblationRecord) -> tuple[list[int], list[QueryLine]]:
    """The numbers of queries of each class, and a line for each row, data set and task shape."""
    queries = sorted({entry["queries"] for row in record.rows for entry in row["results"]})
    lines = []
    for row in record.rows:
        found: dict[str, dict[int, Mapping[str, Any]]] = {}
        for entry in row["results"]:
            tasks = f"{data_set_words(entry)} {entry['shape']}"
            found.setdefault(tasks, {})[entry["queries"]] = entry["accuracy"]
        lines += [QueryLine(row["title"], tasks, accuracy) for tasks, accuracy in found.items()]
    return queries, lines
