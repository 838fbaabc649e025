"""Records of active learning: their table, headlines and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.curves import BASELINE, curve_figures
from cl_cnaps.metrics.intervals import Array
from cl_cnaps.report.few_shot import SEEN_MARK, seen
from cl_cnaps.report.labels import ABSENT, count, method_name, percent
from cl_cnaps.report.table import Column, Table, table_of, text_column
from cl_cnaps.report.view import Headline, Row, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEATURES = {"film": "adapted", "none": "frozen (FFE)"}
"""What the paper calls a fixed feature extractor."""

_SETTINGS = (
    text_column("source", lambda e: e["source"] + (SEEN_MARK if seen(e) else "")),
    text_column("alphabet", lambda e: e["alphabet"] or ""),
    text_column("model", method_name),
    text_column("backbone", lambda e: e["backbone"]),
    text_column("features", lambda e: FEATURES[e["adaptation"]]),
    Column("labels", cell=lambda e: f"{e['labels'][0]} to {e['labels'][-1]} labels"),
    Column("runs", cell=lambda e: count(e["runs"], "run")),
)
_COLUMNS = (
    text_column("strategy", lambda e: e["strategy"]),
    Column("first, %", short="first %", cell=lambda e: _point(e, 0)),
    Column("last, %", short="last %", cell=lambda e: _point(e, -1)),
    Column("area, %", short="area %", cell=lambda e: percent(e["area"], e["area_ci95"])),
    Column("gain over random, points", short="gain", cell=lambda e: _gain(e["gain"])),
    Column("labels to reach", short="to reach", cell=lambda e: _reach(e["reach"])),
)


class ActiveView(View):
    """A record of active learning."""

    verb = "active"

    def curves(self, alphabet: str | None) -> dict[str, Array]:
        """The curves of one task: strategy -> A[run, point]."""
        cells: dict[str, dict[tuple[int, int], float]] = {}
        for row in self.record.table("curves"):
            if row["alphabet"] == (alphabet or ""):
                index = int(row["run"]), int(row["point"])
                cells.setdefault(row["strategy"], {})[index] = float(row["accuracy"])
        return {name: _array(found) for name, found in cells.items()}

    def to_reach(self, reach: float) -> Self:
        """Return the view with the labels needed for this accuracy instead of the one it was written with."""
        figures = {
            alphabet: curve_figures(
                next(row["labels"] for row in self.rows if row["alphabet"] == alphabet),
                self.curves(alphabet),
                reach,
            )
            for alphabet in dict.fromkeys(row["alphabet"] for row in self.rows)
        }
        rows = [{**row, "reach": figures[row["alphabet"]][row["strategy"]]["reach"]} for row in self.rows]
        return type(self)(replace(self.record, summary={**self.record.summary, "rows": rows}))

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:  # noqa: ARG002
        """Accuracy with the last labels, of each strategy; the mean over tasks where there are several."""
        lines = []
        for strategy in dict.fromkeys(row["strategy"] for row in self.rows):
            mine = [row for row in self.rows if row["strategy"] == strategy]
            mean = fmean(row["accuracy"]["mean"][-1] for row in mine)
            one = len(mine) == 1
            what = f"{mine[0]['labels'][-1]} labels" if one else f"{len(mine)} tasks"
            lines.append(
                Headline(f"{strategy}, {what}", mean, mine[0]["accuracy"]["ci95"][-1] if one else None, None)
            )
        return lines

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """One table with a row for each task, kind of features and strategy."""
        return [active_table([row for view in views for row in view.rows])]

    @classmethod
    def figures(cls, views: Sequence[Self]) -> Iterator[tuple[str, Figure]]:
        """Yield the curves of each source."""
        from cl_cnaps.report.plots.active import active_figures

        return active_figures(views)


def active_table(rows: Sequence[Row]) -> Table:
    """Make the table of curves, with means over alphabets below."""
    if not rows:
        raise BadInputError("a table of learning curves needs at least one row")
    ordered = sorted(rows, key=lambda row: _first_of_setting(row, rows))
    return table_of("Learning curves", ordered, _SETTINGS, _COLUMNS, _notes(rows), more=_means(rows))


def _first_of_setting(row: Row, rows: Sequence[Row]) -> int:
    """Return the position of the first row of the same setting: rivals on one curve stand together."""
    setting = [one.cell(row) for one in _SETTINGS if one.cell]
    return next(
        i for i, other in enumerate(rows) if [one.cell(other) for one in _SETTINGS if one.cell] == setting
    )


def _means(rows: Sequence[Row]) -> list[Row]:
    """Means over the alphabets of a model, where there are several: a row for each strategy."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        keys = ("source", "backbone", "adaptation", "weights_source", "strategy")
        kinds.setdefault((method_name(row), *(str(row[key]) for key in keys)), []).append(row)
    return [_mean(mine) for mine in kinds.values() if len({row["alphabet"] for row in mine}) > 1]


def _mean(rows: Sequence[Row]) -> Row:
    """A row whose figures are means over alphabets; no interval, as alphabets are no sample."""
    gains = [row["gain"]["mean"] for row in rows if row["gain"]]
    ends = [fmean(row["accuracy"]["mean"][i] for row in rows) for i in (0, -1)]
    return {
        **rows[0],
        "alphabet": f"mean of {len(rows)}",
        "labels": [round(fmean(row["labels"][i] for row in rows)) for i in (0, -1)],
        "accuracy": {"mean": ends, "ci95": [None, None]},
        "area": fmean(row["area"] for row in rows),
        "area_ci95": None,
        "gain": {"mean": fmean(gains), "ci95": None} if gains else None,
        "reach": None,
    }


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return the notes below the table."""
    notes = ["area: under the curve, as a mean accuracy over the labels."]
    if any(row["gain"] for row in rows):
        notes.append("gain: of area over random, run by run on the same images.")
    goals = {row["reach"]["accuracy"] for row in rows}
    there = any(row["strategy"] == BASELINE for row in rows)
    usual = "at least what random ends with" if there else "at least the lowest that a strategy ends with"
    what = f"at least {percent(goals.pop())} %" if len(goals) == 1 else usual
    notes.append(f"to reach: fewest labels with which the mean accuracy is {what}.")
    if max(row["runs"] for row in rows) > 1:
        notes.append("±: 95 % interval over runs (Student's t).")
    for key, whose in (("pretraining", "backbone"), ("training", "adaptation")):
        if known := {row[f"seen_in_{key}"] for row in rows if row[f"classes_seen_in_{key}"]}:
            notes.append(f"{SEEN_MARK} classes not new to the {whose}: {'; '.join(sorted(known))}.")
    return notes


def _point(row: Mapping[str, Any], index: int) -> str:
    return percent(row["accuracy"]["mean"][index], row["accuracy"]["ci95"][index])


def _gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return ABSENT
    text = percent(gain["mean"], gain["ci95"])
    return f"+{text}" if text[0].isdigit() and gain["mean"] > 0 else text


def _reach(reach: Mapping[str, Any] | None) -> str:
    return ABSENT if reach is None or reach["labels"] is None else str(reach["labels"])


def _array(cells: Mapping[tuple[int, int], float]) -> Array:
    runs, points = (1 + max(index[axis] for index in cells) for axis in (0, 1))
    if len(cells) != runs * points:
        raise BadInputError(f"{runs} runs of {points} points have {len(cells)} accuracies")
    return np.array([[cells[run, point] for point in range(points)] for run in range(runs)])
