"""Class recall against shots (`fig:ratios-and-shots-all-ranges-10max`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from cl_cnaps.results.few_shot import RECALL, FewShotRecord
from cl_cnaps.results.few_shot_recall import RecallPoint, recall_points
from cl_cnaps.results.plots.few_shot_words import record_words, told_apart
from cl_cnaps.results.plots.style import INK, OKABE_ITO, SMALL_SIZE, accuracy_axis, new_figure

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)))
_TICKS = (1, 2, 3, 5, 10, 20, 50, 100, 200)


def recall_figure(records: Sequence[FewShotRecord]) -> Figure:
    """One record: a line for each data set or task shape, and for all together. Several: one line for each."""
    if len(records) == 1:
        title, lines = record_words(records[0]), _lines_of(records[0])
    else:
        labels, title = told_apart(records)
        lines = {label: recall_points(_rows(record)) for label, record in zip(labels, records, strict=True)}
    emphasised = set(lines) if len(records) > 1 or len(lines) == 1 else {_TOGETHER}
    return _figure(title, lines, emphasised)


def recall_by_method(title: Sequence[str], recalls: Mapping[str, Sequence[Mapping[str, str]]]) -> Figure:
    """A line for each method, from its rows of recalls (data_set, shots, classes, recall, std)."""
    return _figure(title, {method: recall_points(rows) for method, rows in recalls.items()}, set(recalls))


def _figure(title: Sequence[str], lines: dict[str, list[RecallPoint]], emphasised: Collection[str]) -> Figure:
    figure = new_figure(7.2, 3.9, title)
    axes = figure.subplots()
    for number, (label, points) in enumerate(lines.items()):
        _draw(axes, label, points, number, emphasised=label in emphasised)
    _axes(axes, lines)
    figure.legend(
        loc="outside right center",
        frameon=False,
        fontsize=SMALL_SIZE,
        title="band: 95 % interval",
        title_fontsize=SMALL_SIZE,
        alignment="left",
        handlelength=3.0,
    )
    return figure


_TOGETHER = "all together"


def _lines_of(record: FewShotRecord) -> dict[str, list[RecallPoint]]:
    rows = _rows(record)
    titles = {entry["data_set"]: entry["title"] for entry in record.entries}
    data_sets = list(dict.fromkeys(row["data_set"] for row in rows))
    ways = list(dict.fromkeys(row["shape"].partition(" ")[0] for row in rows))
    lines = {}
    for data_set in data_sets:
        for way in ways:
            mine = [r for r in rows if r["data_set"] == data_set and r["shape"].partition(" ")[0] == way]
            words = [titles[data_set]] * (len(data_sets) > 1) + [way] * (len(ways) > 1)
            lines[" ".join(words) or titles[data_set]] = recall_points(mine)
    if len(data_sets) > 1:
        lines[_TOGETHER] = recall_points(rows)
    return {label: points for label, points in lines.items() if points}


def _rows(record: FewShotRecord) -> list[dict[str, str]]:
    """The record's recalls; of tasks with varied queries those with most, since the tasks are the same."""
    rows = record.record.table(RECALL)
    most = max(int(row["queries"]) for row in rows)
    return [row for row in rows if int(row["queries"]) == most]


def _draw(axes: Axes, label: str, points: Sequence[RecallPoint], number: int, *, emphasised: bool) -> None:
    shots = [point.shots for point in points]
    recall = np.array([point.recall for point in points])
    half = np.array([point.half for point in points])
    together = label == _TOGETHER
    colour = INK if together else OKABE_ITO[number % len(OKABE_ITO)]
    dash = "-" if together else _DASHES[number // len(OKABE_ITO) % len(_DASHES)]
    if emphasised:
        low, high = (recall - half).clip(0, 100), (recall + half).clip(0, 100)
        axes.fill_between(shots, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(
        shots,
        recall,
        color=colour,
        linestyle=dash,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=4.0 if emphasised else 3.0,
        linewidth=2.0 if emphasised else 1.1,
        zorder=3 if emphasised else 2,
        label=label,
    )


def _axes(axes: Axes, lines: dict[str, list[RecallPoint]]) -> None:
    accuracy_axis(axes, label=True)
    axes.set_ylabel("class recall, %")
    axes.set_xlabel("shots of the class")
    most = max((point.shots for points in lines.values() for point in points), default=1.0)
    axes.set_xscale("log")
    axes.set_xlim(0.88, max(1.3, most * 1.12))
    ticks = [tick for tick in _TICKS if tick <= most * 1.12]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
