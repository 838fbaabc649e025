"""Records of streams: their table, headlines and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.continual import accuracy_matrix
from cl_cnaps.metrics.intervals import Array
from cl_cnaps.report.labels import (
    ABSENT,
    adaptation_words,
    count,
    duration,
    is_plain,
    method_name,
    paper_cell,
    percent,
    size,
)
from cl_cnaps.report.paper.continual import paper_figure
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


class StreamView(View):
    """A stream's record."""

    verb = "stream"

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each head."""
        return [{**row, "paper": _paper(row)} for row in self.record.summary["rows"]]

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
        """One table with a row for each record and head."""
        return [stream_table([row for view in views for row in view.rows])]

    @classmethod
    def draw(cls, views: Sequence[Self], folder: Path, formats: Sequence[str]) -> list[Path]:
        """Draw bars, steps and heat maps."""
        from cl_cnaps.report.plots.drawing import draw_streams

        return draw_streams(views, folder, formats=formats)


def stream_table(rows: Sequence[Row]) -> Table:
    """Make the table of streams; it fits 80 characters on a terminal."""
    if not rows:
        raise BadInputError("a table of streams needs at least one row")
    runs = {row["runs"] for row in rows}
    labels = sorted({row["paper"]["label"] for row in rows if row["paper"]})
    notes = [_EXPLAINED]
    if max(runs) > 1:
        notes.append("±: 95 % interval over runs (Student's t).")
    if 1 in runs:
        notes.append("A single run has no interval.")
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
