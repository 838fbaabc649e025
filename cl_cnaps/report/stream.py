"""Records of streams: their table, headlines and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.continual import accuracy_matrix
from cl_cnaps.metrics.intervals import Array, estimate
from cl_cnaps.names import HEADS
from cl_cnaps.report.labels import (
    ABSENT,
    adaptation_words,
    count,
    duration,
    is_plain,
    method_name,
    paper_cell,
    percent,
    row_name,
    size,
)
from cl_cnaps.report.paper import paper_figure
from cl_cnaps.report.table import Described, Table, table_of
from cl_cnaps.report.view import Headline, Row, View

_SETTINGS = (
    Described.of("benchmark", lambda s: s["benchmark"], numeric=False),
    Described.of("model", method_name, numeric=False),
    Described.of("backbone", lambda s: s["backbone"] or "", numeric=False),
    Described.of("adaptation", lambda s: adaptation_words(s["adaptation"]), numeric=False),
    Described.of("shots", lambda s: count(s["shots"], "shot")),
    Described.of("runs", lambda s: count(s["runs"], "run")),
)
_COLUMNS = (
    Described.of("encoding", lambda s: s["encoding"] or ABSENT, numeric=False),
    Described.of("head", lambda s: s["head"], numeric=False),
    Described.of(
        "final accuracy, %",
        lambda s: percent(s["final_accuracy"]["mean"], s["final_accuracy"]["ci95"]),
        "final %",
    ),
    Described.of("paper, %", lambda s: paper_cell(s["paper"]), "paper %"),
    Described.of("forgetting, points", lambda s: percent(s["forgetting"]), "forget"),
    Described.of("backward transfer, points", lambda s: percent(s["backward_transfer"]), "BWT"),
    Described.of(
        "average incremental accuracy, %", lambda s: percent(s["average_incremental_accuracy"]), "incr."
    ),
    Described.of("seconds", lambda s: duration(s["seconds"]), "sec."),
    Described.of("memory kept", lambda s: size(s["memory_bytes"]), "memory"),
)
_EXPLAINED = (
    "final: mean accuracy over all tasks after the last; forget: points lost since a task's best; BWT: backward "
    "transfer; incr.: average incremental accuracy; memory: kept between tasks."
)


@dataclass(frozen=True)
class StreamView(View):
    """A stream's record, and the one it is compared with, if any."""

    first: StreamView | None = None

    verb = "stream"

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each head; compared ones have their `difference` to the first model."""
        rows = [{**row, "paper": _paper(row)} for row in self.record.summary["rows"]]
        if self.first is None:
            return rows
        return [{**row, "difference": self._difference(row)} for row in rows]

    def _difference(self, row: Row) -> Row | None:
        """The final accuracy minus that of the first model, run by run on the same images; None for itself."""
        assert self.first is not None
        if self.path == self.first.path:
            return None
        (other,) = (one for one in self.first.rows if one["head"] == row["head"])
        gaps = np.subtract(row["final_accuracy"]["per_run"], other["final_accuracy"]["per_run"])
        gap = estimate(gaps)
        return {"to": row_name(other), "mean": gap.mean, "ci95": gap.ci95}

    @classmethod
    def compared(cls, views: Sequence[Self]) -> list[Self]:
        """Return the records of one command, those of several models compared with the first."""
        if len(views) == 1:
            return list(views)
        return [replace(view, first=views[0]) for view in views]

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks, in the order of learning."""
        return list(self.record.summary["tasks"])

    def accuracy(self, head: str) -> Array:
        """A[run, step, task] of one head; NaN where the task had not been seen."""
        return accuracy_matrix(list(self.record.table("accuracy")), head)

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:  # noqa: ARG002
        """Final accuracy of each head."""
        return [
            Headline(row["head"], row["final_accuracy"]["mean"], row["final_accuracy"]["ci95"], row["paper"])
            for row in self.rows
        ]

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """One table with a row for each record and head; of several models, sorted by accuracy under each head."""
        rows = [row for view in views for row in view.rows]
        several = len({row_name(row) for row in rows}) > 1 and all("difference" in row for row in rows)
        return [comparison_table(rows) if several else stream_table(rows)]

    @classmethod
    def draw(cls, views: Sequence[Self], folder: Path, formats: Sequence[str]) -> list[Path]:
        """Draw bars, steps and heat maps; of several models that were run together, one chart and their steps."""
        from cl_cnaps.report.plots.streams import KINDS, draw_streams

        several = len({row_name(row) for view in views for row in view.rows}) > 1
        together = several and all(view.first is not None for view in views)
        kinds = ("comparison", "steps") if together else KINDS
        return draw_streams(views, folder, kinds=kinds, formats=formats)


def comparison_table(rows: Sequence[Row]) -> Table:
    """Make the table of several models on the same images: heads one after the other, best models first."""
    order = sorted(rows, key=lambda row: (-HEADS.index(row["head"]), -row["final_accuracy"]["mean"]))
    backbones = [row["backbone"] for row in rows if row["backbone"] not in (None, "none")]
    settings = (
        _SETTINGS[0],
        Described.of("head", lambda s: f"{s['head']} head", numeric=False),
        Described.of("backbone", lambda _: ", ".join(dict.fromkeys(backbones)), numeric=False),
        *_SETTINGS[4:],
    )
    to = next((row["difference"]["to"] for row in rows if row["difference"]), "the first")
    columns = (
        Described.of("model", row_name, numeric=False),
        _COLUMNS[2],
        Described.of(f"difference to {to}, points", _difference_cell, "diff."),
        *(_COLUMNS[i] for i in (4, 6, 7, 8)),
    )
    notes = [_EXPLAINED, f"diff.: to {to}, in points, run by run on the same images."]
    return table_of("Streams", order, settings, columns, [*notes, *_interval_notes(rows)])


def _difference_cell(row: Mapping[str, Any]) -> str:
    gap = row["difference"]
    if gap is None:
        return ABSENT
    sign = "+" if gap["mean"] > 0 else ""
    return sign + percent(gap["mean"], gap["ci95"])


def _interval_notes(rows: Sequence[Row]) -> list[str]:
    runs = {row["runs"] for row in rows}
    notes = ["±: 95 % interval over runs (Student's t)."] if max(runs) > 1 else []
    return notes + (["A single run has no interval."] if 1 in runs else [])


def stream_table(rows: Sequence[Row]) -> Table:
    """Make the table of streams; it fits 80 characters on a terminal."""
    if not rows:
        raise BadInputError("a table of streams needs at least one row")
    labels = sorted({row["paper"]["label"] for row in rows if row["paper"]})
    notes = [_EXPLAINED, *_interval_notes(rows)]
    if labels:
        notes.append(f"Paper: {', '.join(labels)}.")
    return table_of("Streams", rows, _SETTINGS, _COLUMNS, notes)


def _paper(row: Mapping[str, Any]) -> Row | None:
    """The paper's cell in per cent; none for other shots, metrics and variants, which the paper did not measure."""
    if not is_plain(row):
        return None
    figure = paper_figure(
        benchmark=row["benchmark"], model=row["model"], encoding=row["encoding"], head=row["head"]
    )
    if figure is None or figure.shots != row["shots"]:
        return None
    return {"mean": figure.mean, "interval": figure.interval, "unit": "percent", "label": figure.label}
