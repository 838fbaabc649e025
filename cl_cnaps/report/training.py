"""A meta-training as tables and figures show it: the columns of every validation and of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_cnaps.models.adaptation import COLUMNS
from cl_cnaps.report.table import Cell, Column, Table, TableRow, words

Scores = Mapping[str, Mapping[str, float]]
"""Accuracy by column (own, static, swapped, frozen) and source."""

MEANING: Mapping[str, str] = {
    "own": "adapted to each task",
    "static": "one modulation for all tasks",
    "swapped": "adapted to a foreign source",
    "frozen": "not adapted",
}


def accuracy_table(
    best: Mapping[str, Any], tested: Scores, sources: Mapping[str, Mapping[str, Any]]
) -> Table:
    """Return the accuracy of the weights that are kept, by source: on validation tasks, then on test tasks."""
    rows = _rows("validate", best["scores"], sources) + _rows("test", tested, sources)
    return Table(
        "training",
        f"accuracy, %, of the best weights (after {best['tasks']:,} tasks)",
        [Column("", numeric=False), *(Column(kind) for kind in COLUMNS)],
        rows,
        notes=["; ".join(f"{kind}: {meaning}" for kind, meaning in MEANING.items()) + "."],
    )


def _rows(role: str, scores: Scores, sources: Mapping[str, Mapping[str, Any]]) -> list[TableRow]:
    title = {"validate": "validation", "test": "test"}[role]
    return [
        TableRow(
            [
                words(
                    f"{title}: {name}, {sources[name][role]['classes']:,} classes of {sources[name][role]['split']}"
                ),
                *(Cell(f"{100 * scores[kind][name]:.1f}", 100 * scores[kind][name]) for kind in COLUMNS),
            ]
        )
        for name in scores.get("own", {})
    ]


def read_curves(folder: Path) -> tuple[dict[int, Scores], Scores]:
    """Return the validations of a run by number of tasks, and its test, from its log."""
    validations: dict[int, Scores] = {}
    tested: Scores = {}
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        scores: dict[str, Mapping[str, float]] = {kind: entry[kind] for kind in COLUMNS if kind in entry}
        if entry["kind"] == "validation" and scores:
            validations[entry["tasks"]] = scores
        elif entry["kind"] == "test":
            tested = scores
    return validations, tested
