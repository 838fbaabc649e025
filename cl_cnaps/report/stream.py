"""Records of streams: their measures, tables, headlines and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.continual import accuracy_matrix, final_accuracy, image_weighted, query_counts
from cl_cnaps.metrics.intervals import Array, estimate
from cl_cnaps.names import HEADS
from cl_cnaps.names import MEASURES as NAMES
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
from cl_cnaps.report.table import Column, Table, table_of, text_column
from cl_cnaps.report.view import Headline, Row, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _protocol(row: Mapping[str, Any]) -> str:
    """Return the sizes of tasks as papers write them, such as B50-Inc10, unless the benchmark has them in its name."""
    name = row.get("protocol") or ""
    return "" if str(row["benchmark"]).endswith(f":{name}") else name


_SETTINGS = (
    text_column("benchmark", lambda s: s["benchmark"]),
    text_column("tasks", _protocol),
    text_column("online", lambda s: f"batches of {s['batch']}" if s.get("batch") else ""),
    text_column("model", method_name),
    text_column("backbone", lambda s: s["backbone"] or ""),
    text_column("adaptation", lambda s: adaptation_words(s["adaptation"])),
    Column("shots", cell=lambda s: count(s["shots"], "shot")),
    Column("runs", cell=lambda s: count(s["runs"], "run")),
)
_ENCODING = text_column("encoding", lambda s: s["encoding"] or ABSENT)
_HEAD = text_column("head", lambda s: s["head"])
_PAPER = Column("paper, %", short="paper %", cell=lambda s: paper_cell(s["paper"]))


@dataclass(frozen=True)
class Measure:
    """A number of a stream as tables show it."""

    title: str
    short: str
    explained: str = ""
    low_is_best: bool = False
    words: Callable[[float, float | None], str] = percent


MEASURES: Mapping[str, Measure] = {
    "final": Measure("final accuracy, %", "final %", "mean accuracy over all tasks after the last"),
    "images": Measure(
        "final accuracy over images, %", "images %", "accuracy over all images after the last task"
    ),
    "forgetting": Measure(
        "forgetting, points", "forget", "points lost since a task's best", low_is_best=True
    ),
    "backward": Measure("backward transfer, points", "BWT", "backward transfer"),
    "forward": Measure(
        "forward transfer, points",
        "FWT",
        "forward transfer: accuracy above chance before a task is learned; 0 by definition where a single head has "
        "seen none of its classes, none for the multi head",
    ),
    "learning": Measure("learning accuracy, %", "learn", "accuracy on a task just learned"),
    "incremental": Measure("average incremental accuracy, %", "incr.", "average incremental accuracy"),
    "incremental-images": Measure(
        "average incremental accuracy over images, %", "incr. im.", "average incremental accuracy over images"
    ),
    "drop": Measure(
        "performance drop, points",
        "PD",
        "accuracy over images after the first task minus after the last",
        True,
    ),
    "base": Measure("base accuracy, %", "base", "of the first task after the last"),
    "novel": Measure("novel accuracy, %", "novel", "over the images of the other tasks after the last"),
    "harmonic": Measure("harmonic mean, %", "HM", "harmonic mean of base and novel"),
    "calibration": Measure(
        "calibration error, points", "ECE", "expected calibration error after the last task, 15 bins", True
    ),
    "nll": Measure(
        "negative log-likelihood",
        "NLL",
        "mean of -log p of the right class after the last task",
        True,
        lambda value, half: f"{value:.3f}" + ("" if half is None else f" ± {half:.3f}"),
    ),
    "seconds": Measure("seconds", "sec.", "", True, lambda value, _: duration(value)),
    "memory": Measure("memory kept", "memory", "kept between tasks", True, lambda value, _: size(value)),
}
_USUAL = ("final", "forgetting", "backward", "incremental", "seconds", "memory")
_COMPARED = ("final", "forgetting", "incremental", "seconds", "memory")
_FSCIL = ("images", "base", "novel", "harmonic", "seconds", "memory")
"""Of few-shot class-incremental streams; the drop stands in the table of sessions."""


_IMAGES = ("benchmark", "tasks", "data_digest", "seed", "runs", "shots", "shots_by_task", "queries", "listed")
"""What decides which images a run has."""


def measured(row: Mapping[str, Any], name: str) -> tuple[float | None, float | None]:
    """Return a measure of a row and half of its interval; None where there is none."""
    key = NAMES[name]
    found = row.get(key)
    return (found["mean"], found["ci95"]) if isinstance(found, Mapping) else (found, row.get(f"{key}_ci95"))


def _columns(names: Sequence[str]) -> list[Column]:
    """The columns of measures; the final accuracies have their intervals."""

    def column(name: str) -> Column:
        def cell(row: Mapping[str, Any]) -> str:
            mean, half = measured(row, name)
            intervals = name in ("final", "images")
            return ABSENT if mean is None else MEASURES[name].words(mean, half if intervals else None)

        return Column(MEASURES[name].title, short=MEASURES[name].short, cell=cell)

    return [column(name) for name in names]


def _explained(names: Sequence[str]) -> str:
    parts = [
        f"{MEASURES[name].short}: {MEASURES[name].explained}" for name in names if MEASURES[name].explained
    ]
    return "; ".join(parts).replace(" %:", ":") + "."


@dataclass(frozen=True)
class StreamView(View):
    """A stream's record, the one it is compared with, if any, and the measures that its table shows, if chosen."""

    first: StreamView | None = None
    metrics: tuple[str, ...] = ()

    verb = "stream"

    @property
    def name(self) -> str:
        """Model and encoding, or what a baseline works on."""
        return row_name(self.record.summary["rows"][0])

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each head; compared ones have their `difference` to the first model."""
        rows = [{**row, "paper": _paper(row)} for row in self.record.summary["rows"]]
        if self.first is None:
            return rows
        return [{**row, "difference": self._difference(row)} for row in rows]

    def _difference(self, row: Row) -> Row | None:
        """The accuracy after the last task minus the first model's, run by run; None for itself, or on other images."""
        assert self.first is not None
        other = next((one for one in self.first.rows if one["head"] == row["head"]), None)
        mine, theirs = ({key: one.record.config.get(key) for key in _IMAGES} for one in (self, self.first))
        if self.path == self.first.path or other is None or mine != theirs:
            return None
        mine_R, theirs_R = (view._per_run(row) for view in (self, self.first))
        gap = estimate(mine_R - theirs_R)
        return {
            "to": row_name(other),
            "of": "image_accuracy" if is_fscil(row) else "final_accuracy",
            "mean": gap.mean,
            "ci95": gap.ci95,
        }

    def _per_run(self, row: Row) -> Array:
        """The final accuracy of every run: over tasks, or over images where that is the usual number."""
        accuracy = self.accuracy(row["head"])
        if not is_fscil(row):
            return final_accuracy(accuracy)
        counts = query_counts(list(self.record.table("accuracy")))
        return np.asarray(image_weighted(accuracy, counts)[:, -1])

    @classmethod
    def compared(cls, views: Sequence[Self], metrics: Sequence[str] = ()) -> list[Self]:
        """Return the records of one command, several models compared with the first, with a choice of measures."""
        first = views[0] if len(views) > 1 else None
        return [replace(view, first=first, metrics=tuple(dict.fromkeys(metrics))) for view in views]

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks, in the order of learning."""
        return list(self.record.summary["tasks"])

    def accuracy(self, head: str) -> Array:
        """A[run, step, task] of one head; NaN where the task had not been seen."""
        return accuracy_matrix(list(self.record.table("accuracy")), head)

    def confusion(self, head: str) -> tuple[list[str], NDArray[np.int64]] | None:
        """Classes in the order of learning, and K x K counts after the last step: row the right class.

        None of a record without such a table.
        """
        if not (self.path / "confusion.csv").is_file():
            return None
        names = list(dict.fromkeys(name for task in self.record.config["tasks"] for name in task))
        number = {name: i for i, name in enumerate(names)}
        counts = np.zeros((len(names), len(names)), dtype=np.int64)
        for row in self.record.table("confusion"):
            if row["head"] == head:
                counts[number[row["label"]], number[row["predicted"]]] = int(row["count"])
        return names, counts

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:  # noqa: ARG002
        """Final accuracy of each head."""
        return [
            Headline(row["head"], row["final_accuracy"]["mean"], row["final_accuracy"]["ci95"], row["paper"])
            for row in self.rows
        ]

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """One table with a row for each record and head, and one with the sessions or domains of streams of such."""
        rows = [row for view in views for row in view.rows]
        fscil = all(is_fscil(row) and row.get("accuracy_by_step") for row in rows)
        metrics = views[0].metrics or (_FSCIL if fscil else ())
        several = len({row_name(row) for row in rows}) > 1 and all("difference" in row for row in rows)
        tables = [comparison_table(rows, metrics) if several else stream_table(rows, metrics)]
        if fscil:
            tables.append(session_table(rows))
        names = views[0].task_names
        domains = all(_is_of_domains(row) and row.get("final_accuracy_by_task") for row in rows)
        if domains and all(view.task_names == names for view in views):
            tables.append(domain_table(rows, names))
        return tables

    @classmethod
    def figures(cls, views: Sequence[Self]) -> Iterator[tuple[str, Figure]]:
        """Yield bars, steps, heat maps and confusions; of several models run together, one chart and their steps."""
        from cl_cnaps.report.plots.streams import KINDS, stream_figures

        several = len({row_name(row) for view in views for row in view.rows}) > 1
        together = several and all(view.first is not None for view in views)
        return stream_figures(views, ("comparison", "steps") if together else KINDS)


def stream_table(rows: Sequence[Row], metrics: Sequence[str] = ()) -> Table:
    """Make the table of streams; it fits 80 characters on a terminal unless `metrics` are many."""
    if not rows:
        raise BadInputError("a table of streams needs at least one row")
    names = metrics or _USUAL
    columns = _columns(names)
    notes = [_explained(names), *_interval_notes(rows)]
    if not metrics:
        columns.insert(1, _PAPER)
        if labels := sorted({row["paper"]["label"] for row in rows if row["paper"]}):
            notes.append(f"Paper: {', '.join(labels)}.")
    return table_of("Streams", rows, _SETTINGS, (_ENCODING, _HEAD, *columns), notes)


def comparison_table(rows: Sequence[Row], metrics: Sequence[str] = ()) -> Table:
    """Make the table of several models on the same images: heads one after the other, best models first."""
    names = metrics or _COMPARED
    to = next((row["difference"]["to"] for row in rows if row["difference"]), "the first")
    what = "accuracy over images" if is_fscil(rows[0]) else "final accuracy"
    columns = [
        text_column("model", row_name),
        *_columns(names[:1]),
        Column(f"difference to {to}, points", short="diff.", cell=_difference_cell),
        *_columns(names[1:]),
    ]
    notes = [
        _explained(names),
        f"diff.: {what} minus that of {to}, in points, run by run on the same images.",
    ]
    return table_of("Streams", _sorted(rows), _shared(rows), columns, [*notes, *_interval_notes(rows)])


def session_table(rows: Sequence[Row]) -> Table:
    """Make the table of few-shot class-incremental streams: accuracy after each session, and the drop."""

    def after(step: int) -> Column:
        return Column(str(step), cell=lambda row: percent(row["accuracy_by_step"]["mean"][step]))

    steps = max(len(row["accuracy_by_step"]["mean"]) for row in rows)
    model = text_column("model", row_name)
    notes = [
        "0, 1, ...: accuracy in % over the images of all classes seen, after the base session (session 1 of "
        "published image lists) and each novel one. "
        f"{_explained(('drop',))}"
    ]
    columns = [model, *map(after, range(steps)), *_columns(("drop",))]
    return table_of("Sessions", _sorted(rows), _shared(rows), columns, notes)


def domain_table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    """Make the table of streams whose tasks are domains: the accuracy of each after the last, and their mean."""

    def of(task: int) -> Column:
        return Column(names[task], cell=lambda row: percent(row["final_accuracy_by_task"]["mean"][task]))

    model = text_column("model", row_name)
    columns = [model, *map(of, range(len(names))), *_columns(("final",))]
    notes = ["A column for each task: its accuracy in % after the last.", *_interval_notes(rows)]
    return table_of("Domains", _sorted(rows), _shared(rows), columns, notes)


def is_fscil(row: Row) -> bool:
    """Whether a row is of a few-shot class-incremental stream, whose accuracies are over images."""
    return str(row["benchmark"]).startswith("fscil-")


def usual_accuracy(row: Row) -> tuple[float, float | None]:
    """Return the accuracy that models are ordered by, and half of its interval."""
    mean, half = measured(row, "images" if is_fscil(row) else "final")
    assert mean is not None
    return mean, half


def _is_of_domains(row: Row) -> bool:
    return row["benchmark"].split(":")[0].split("-")[0] in ("mixed", "domains", "permuted", "rotated")


def _sorted(rows: Sequence[Row]) -> list[Row]:
    """Single heads first, best models first."""

    def key(row: Row) -> tuple[int, float]:
        return -HEADS.index(row["head"]), -usual_accuracy(row)[0]

    return sorted(rows, key=key)


def _shared(rows: Sequence[Row]) -> tuple[Column, ...]:
    """Settings above a table of several models; small networks of their own do not count as another backbone.

    Where the models' features differ, their names tell which each has.
    """
    benchmark, tasks, online, _, _, features, *draws = _SETTINGS
    backbones = dict.fromkeys(row["backbone"] for row in rows if row["backbone"] not in (None, "none"))
    return (
        benchmark,
        tasks,
        online,
        text_column("head", lambda s: f"{s['head']} head"),
        text_column("backbone", lambda _: ", ".join(backbones)),
        *([features] if len({row["adaptation"] for row in rows}) == 1 else []),
        *draws,
    )


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
