"""Charts of few-shot evaluations: recall against shots, ways and shots of tasks, accuracy against queries.

The paper's are `fig:ratios-and-shots-all-ranges-10max`, `fig:ways-frequency` and `fig:shot-frequency`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.curves import RecallPoint, recall_points
from cl_cnaps.records.record import record_name
from cl_cnaps.report.few_shot import FewShotView
from cl_cnaps.report.labels import adaptation_words, count, labels_and_title, method_name
from cl_cnaps.report.plots.style import (
    DASHES,
    FORMATS,
    INK,
    MARKERS,
    OKABE_ITO,
    accuracy_axis,
    band_line,
    chart_settings,
    line_legend,
    new_figure,
    open_axes,
    save,
)
from cl_cnaps.report.view import Row


def draw_few_shot(
    records: Sequence[FewShotView], folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw records together: recall against shots, ways and shots of tasks and, if varied, accuracy against queries.

    With one record the lines of the recall chart are data sets and task shapes, with several they are records. Targets
    have figures of their own, called after them where there are several.
    """
    if not records:
        raise BadInputError("there is no record to draw")
    targets: dict[str, list[FewShotView]] = {}
    for record in records:
        targets.setdefault(record.rows[0]["target"], []).append(record)
    paths = []
    with chart_settings():
        for target, mine in targets.items():
            suffix = "" if len(targets) == 1 else f"-{record_name(target)}"
            paths += save(recall_figure(mine), folder, f"recall{suffix}", formats)
            paths += save(histogram_figure(mine[0]), folder, f"tasks{suffix}", formats)
            varied = [record for record in mine if varies_queries(record)]
            if varied:
                paths += save(queries_figure(varied), folder, f"queries{suffix}", formats)
    return paths


def draw_shapes_of_tasks(
    record: FewShotView, folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """How many ways and shots the tasks of a record have, alone."""
    with chart_settings():
        return save(histogram_figure(record), folder, "tasks", formats)


def record_words(record: FewShotView) -> dict[str, str]:
    """Return target, model, backbone, adaptation and tasks."""
    first = record.rows[0]
    return {
        "target": first["target"],
        "model": method_name(first),
        "backbone": first["backbone"],
        "features": adaptation_words(first["adaptation"]),
        "tasks": f"{count(first['tasks'], 'task')} of each kind",
    }


def _labels(records: Sequence[FewShotView]) -> tuple[list[str], list[str]]:
    """A label for each record from what differs between them, and what all share, for the title."""
    labels, shared = labels_and_title([record_words(record) for record in records])
    if len(set(labels)) < len(labels):  # the same setting: records are named by their ids
        labels = [
            " ".join(filter(None, (label, r.record.id))) for label, r in zip(labels, records, strict=True)
        ]
    return labels, shared


def histogram_figure(record: FewShotView) -> Figure:
    """Tasks by their number of ways; classes by their number of shots, in all tasks of the record."""
    episodes, recall = record.record.table("episodes"), record.record.table("recall")
    some = episodes[0]["queries"]  # tasks with varied queries are the same tasks: count them once
    ways = Counter(int(row["ways"]) for row in episodes if row["queries"] == some)
    shots: Counter[int] = Counter()
    for row in recall:
        if row["queries"] == some:
            shots[int(row["shots"])] += int(row["classes"])
    figure = new_figure(7.2, 2.9, list(record_words(record).values()))
    left, right = figure.subplots(1, 2)
    _histogram(left, ways, "ways of the task", "tasks", OKABE_ITO[0])
    _histogram(right, shots, "shots of the class", "classes", OKABE_ITO[2])
    return figure


def _histogram(axes: Axes, counts: Mapping[int, int], what: str, of: str, colour: str) -> None:
    axes.bar(list(counts), list(counts.values()), width=0.9, color=colour)
    # Room around a single bar, which would else fill the chart.
    axes.set_xlim(min(0, min(counts) - 1), max(counts) + max(1.0, 0.04 * max(counts)))
    axes.set_xlabel(what)
    axes.set_ylabel(f"number of {of}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    open_axes(axes)


def varies_queries(record: FewShotView) -> bool:
    """Whether a record has tasks with several numbers of queries."""
    return len({entry["queries"] for entry in record.rows}) > 1


def queries_figure(records: Sequence[FewShotView]) -> Figure:
    """A line for each data set and task shape of each record; the axis spans the data, since differences are small."""
    labels, title = _labels(records) if len(records) > 1 else ([""], list(record_words(records[0]).values()))
    return queries_by_method(
        title, {label: record.rows for label, record in zip(labels, records, strict=True)}
    )


def queries_by_method(title: Sequence[str], methods: Mapping[str, Sequence[Row]]) -> Figure:
    """A line for each data set and task shape of each method."""
    figure = new_figure(7.2, 3.6, title)
    axes = figure.subplots()
    lines = {
        ", ".join(filter(None, (label, name))): mine
        for label, entries in methods.items()
        for name, mine in _query_lines(entries).items()
    }
    for number, (label, entries) in enumerate(lines.items()):
        entries = sorted(entries, key=lambda entry: int(entry["queries"]))
        queries = [entry["queries"] for entry in entries]
        mean = np.array([100 * entry["accuracy"]["mean"] for entry in entries])
        half = np.array([100 * (entry["accuracy"]["ci95"] or 0.0) for entry in entries])
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        dash, marker = DASHES[number // len(OKABE_ITO) % len(DASHES)], MARKERS[number % len(MARKERS)]
        look: dict[str, Any] = {"linestyle": dash, "marker": marker, "markersize": 4.0}
        band_line(axes, queries, mean, half, band=0.13, color=colour, label=label, **look)
    axes.set_xticks(sorted({entry["queries"] for entries in methods.values() for entry in entries}))
    axes.set_xlabel("queries of each class")
    axes.set_ylabel("accuracy, %")
    open_axes(axes)
    line_legend(figure, "band: 95 % over tasks")
    return figure


def _query_lines(entries: Sequence[Row]) -> dict[str, list[Row]]:
    """The entries of each data set and task shape."""
    lines: dict[str, list[Row]] = {}
    for entry in entries:
        words = entry["title"] if entry["shape"] == "variable" else f"{entry['title']} {entry['shape']}"
        lines.setdefault(words, []).append(entry)
    return lines


_TICKS = (1, 2, 3, 5, 10, 20, 50, 100, 200)


def recall_figure(records: Sequence[FewShotView]) -> Figure:
    """One record: a line for each data set or task shape, and for all together. Several: one line for each."""
    if len(records) == 1:
        title, lines = list(record_words(records[0]).values()), _lines_of(records[0])
    else:
        labels, title = _labels(records)
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
    line_legend(figure, "band: 95 % interval")
    return figure


_TOGETHER = "all together"


def _lines_of(record: FewShotView) -> dict[str, list[RecallPoint]]:
    rows = _rows(record)
    titles = {entry["data_set"]: entry["title"] for entry in record.rows}
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


def _rows(record: FewShotView) -> list[dict[str, str]]:
    """The record's recalls; of tasks with varied queries those with most, since the tasks are the same."""
    rows = record.record.table("recall")
    most = max(int(row["queries"]) for row in rows)
    return [row for row in rows if int(row["queries"]) == most]


def _draw(axes: Axes, label: str, points: Sequence[RecallPoint], number: int, *, emphasised: bool) -> None:
    shots = [point.shots for point in points]
    recall = np.array([point.recall for point in points])
    half = np.array([point.half for point in points])
    together = label == _TOGETHER
    colour = INK if together else OKABE_ITO[number % len(OKABE_ITO)]
    dash = "-" if together else DASHES[number // len(OKABE_ITO) % len(DASHES)]
    band_line(
        axes,
        shots,
        recall,
        half if emphasised else None,
        band=0.15,
        color=colour,
        linestyle=dash,
        marker=MARKERS[number % len(MARKERS)],
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
