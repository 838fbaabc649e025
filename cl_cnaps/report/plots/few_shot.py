"""Charts of few-shot evaluations and ablations: recall against shots, shapes of tasks, queries, encodings, grids.

The paper's are `fig:ratios-and-shots-all-ranges-10max`, `fig:ways-frequency`, `fig:shot-frequency`, `fig:max-and-min`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from cl_cnaps.metrics.curves import RecallPoint, recall_points
from cl_cnaps.records.record import record_name
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.adaptation import film_distances, film_ratio, task_encodings
from cl_cnaps.report.few_shot import FewShotView
from cl_cnaps.report.labels import adaptation_words, count, labels_and_title, method_name
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.style import INK, MARKERS, OKABE_ITO, SMALL_SIZE, new_figure
from cl_cnaps.report.view import Row


def few_shot_figures(views: Sequence[FewShotView]) -> Iterator[tuple[str, Figure]]:
    """Yield recall against shots, ways and shots of tasks and, if varied, accuracy against queries.

    With one record the lines of the recall chart are data sets and task shapes, with several they are records. Targets
    have figures of their own, called after them where there are several.
    """
    targets: dict[str, list[FewShotView]] = {}
    for view in views:
        targets.setdefault(view.rows[0]["target"], []).append(view)
    for target, mine in targets.items():
        suffix = "" if len(targets) == 1 else f"-{record_name(target)}"
        yield f"recall{suffix}", recall_figure(mine)
        yield f"tasks{suffix}", histogram_figure(mine[0])
        if varied := [view for view in mine if len({row["queries"] for row in view.rows}) > 1]:
            labels, title = _labels(varied)
            rows = {label: view.rows for label, view in zip(labels, varied, strict=True)}
            yield f"queries{suffix}", queries_figure(title, rows)


def _labels(views: Sequence[FewShotView]) -> tuple[list[str], list[str]]:
    """A label for each record from what differs between them, and what all share, for the title."""
    labels, shared = labels_and_title([_words(view) for view in views])
    if len(set(labels)) < len(labels):  # the same setting: records are named by their ids
        labels = [
            " ".join(filter(None, (label, v.record.id))) for label, v in zip(labels, views, strict=True)
        ]
    return labels, shared


def _words(view: FewShotView) -> dict[str, str]:
    """Target, model, backbone, adaptation and tasks."""
    first = view.rows[0]
    return {
        "target": first["target"],
        "model": method_name(first),
        "backbone": first["backbone"],
        "features": adaptation_words(first["adaptation"]),
        "tasks": f"{count(first['tasks'], 'task')} of each kind",
    }


def histogram_figure(view: FewShotView) -> Figure:
    """Tasks by their number of ways; classes by their number of shots, in all tasks of the record."""
    episodes, recall = (pd.DataFrame(view.record.table(name)) for name in ("episodes", "recall"))
    # Tasks with varied queries are the same tasks: count them once.
    episodes, recall = (table[table["queries"] == episodes["queries"][0]] for table in (episodes, recall))
    figure = new_figure(7.2, 2.9, list(_words(view).values()))
    left, right = figure.subplots(1, 2)
    ways = episodes["ways"].astype(int).value_counts(sort=False)
    shots = recall.astype({"shots": int, "classes": int}).groupby("shots", sort=False)["classes"].sum()
    _histogram(left, ways, "ways of the task", "tasks", OKABE_ITO[0])
    _histogram(right, shots, "shots of the class", "classes", OKABE_ITO[2])
    return figure


def _histogram(axes: Axes, counts: pd.Series, what: str, of: str, colour: str) -> None:
    numbers = counts.index.to_numpy()
    axes.bar(numbers, counts.to_numpy(), width=0.9, color=colour)
    # Room around a single bar, which would else fill the chart.
    axes.set_xlim(min(0, numbers.min() - 1), numbers.max() + max(1.0, 0.04 * numbers.max()))
    axes.set_xlabel(what)
    axes.set_ylabel(f"number of {of}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    style.open_axes(axes)


def queries_figure(title: Sequence[str], methods: Mapping[str, Sequence[Row]]) -> Figure:
    """A line for each data set and task shape of each method; the axis spans the data, since differences are small."""
    figure = new_figure(7.2, 3.6, title)
    axes = figure.subplots()
    lines: dict[str, list[Row]] = {}
    for method, rows in methods.items():
        for row in sorted(rows, key=lambda row: int(row["queries"])):
            tasks = row["title"] if row["shape"] == "variable" else f"{row['title']} {row['shape']}"
            lines.setdefault(", ".join(filter(None, (method, tasks))), []).append(row)
    for number, (label, rows) in enumerate(lines.items()):
        mean = np.array([100 * row["accuracy"]["mean"] for row in rows])
        half = np.array([100 * (row["accuracy"]["ci95"] or 0.0) for row in rows])
        look = style.line_look(number) | {"markersize": 4.0, "label": label}
        style.band_line(axes, [row["queries"] for row in rows], mean, half, **look)
    axes.set_xticks(sorted({row["queries"] for rows in methods.values() for row in rows}))
    axes.set_xlabel("queries of each class")
    axes.set_ylabel("accuracy, %")
    style.open_axes(axes)
    style.add_legend(figure, title="band: 95 % over tasks")
    return figure


_TICKS = (1, 2, 3, 5, 10, 20, 50, 100, 200)
_TOGETHER = "all together"


def recall_figure(views: Sequence[FewShotView]) -> Figure:
    """One record: a line for each data set or task shape, and for all together. Several: one line for each."""
    labels, title = _labels(views)
    if len(views) > 1:
        points = {label: recall_points(_recalls(view)) for label, view in zip(labels, views, strict=True)}
        return recall_by_method(title, points, points)
    lines = _lines_of(views[0])
    return recall_by_method(title, lines, lines if len(lines) == 1 else {_TOGETHER})


def recall_by_method(
    title: Sequence[str], lines: Mapping[str, Sequence[RecallPoint]], emphasised: Collection[str]
) -> Figure:
    """A line for each method, with a band where it is emphasised."""
    figure = new_figure(7.2, 3.9, title)
    axes = figure.subplots()
    for number, (label, points) in enumerate(lines.items()):
        shots, recall, half = (
            np.array([getattr(p, key) for p in points]) for key in ("shots", "recall", "half")
        )
        look = style.line_look(number) | ({"color": INK, "linestyle": "-"} if label == _TOGETHER else {})
        strong = label in emphasised
        sizes = {"markersize": 4.0, "linewidth": 2.0} if strong else {"markersize": 3.0, "linewidth": 1.1}
        look |= {"label": label, "zorder": 2 + strong, **sizes}
        style.band_line(axes, shots, recall, half if strong else None, band=0.15, **look)
    style.accuracy_axis(axes, label=True)
    axes.set_ylabel("class recall, %")
    axes.set_xlabel("shots of the class")
    most = 1.12 * max((point.shots for points in lines.values() for point in points), default=1.0)
    axes.set_xscale("log")
    axes.set_xlim(0.88, max(1.3, most))
    ticks = [tick for tick in _TICKS if tick <= most]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    style.add_legend(figure, title="band: 95 % interval")
    return figure


def _lines_of(view: FewShotView) -> dict[str, list[RecallPoint]]:
    """The recall of each data set and number of ways of a record, and of all together."""
    rows = _recalls(view)
    titles = {row["data_set"]: row["title"] for row in view.rows}
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["data_set"], row["shape"].partition(" ")[0]), []).append(row)
    data_sets, ways = (len(set(some)) for some in zip(*groups, strict=True))
    lines = {}
    for (data_set, way), mine in groups.items():
        words = [titles[data_set]] * (data_sets > 1) + [way] * (ways > 1)
        lines[" ".join(words) or titles[data_set]] = recall_points(mine)
    if data_sets > 1:
        lines[_TOGETHER] = recall_points(rows)
    return {label: points for label, points in lines.items() if points}


def _recalls(view: FewShotView) -> list[dict[str, str]]:
    """The record's recalls; of tasks with varied queries those with most, since the tasks are the same."""
    rows = view.record.table("recall")
    most = max(int(row["queries"]) for row in rows)
    return [row for row in rows if int(row["queries"]) == most]


def ablation_figures(views: Sequence[AblationView]) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of each record; of several records of one ablation, the id distinguishes them."""
    for view in views:
        alone = sum(other.which == view.which for other in views) == 1
        for name in view.figure_names:
            yield name if alone else f"{name}-{view.record.id}", _FIGURES[name](view)


def encodings_figure(view: AblationView) -> Figure:
    """Task encodings in two dimensions (PCA), coloured by data set: tasks of one kind lie together if it is encoded."""
    titles, encodings = task_encodings(view)
    left, spread, _ = np.linalg.svd(encodings - encodings.mean(axis=0), full_matrices=False)
    points = (left * spread)[:, :2]
    share = spread**2 / max(float((spread**2).sum()), 1e-12)
    names = list(dict.fromkeys(titles))
    figure = new_figure(7.6, 4.4, ["Task encodings", view.shared[1]])
    axes = figure.subplots()
    for number, name in enumerate(names):
        mine = points[[title == name for title in titles]]
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        hollow = number >= len(OKABE_ITO)
        look: dict[str, Any] = {"facecolors": colour, "edgecolors": "white", "linewidths": 0.5}
        if hollow:
            look = {"facecolors": "none", "edgecolors": colour, "linewidths": 1.3}
        second = mine[:, 1] if points.shape[1] > 1 else np.zeros(len(mine))
        axes.scatter(mine[:, 0], second, s=26, marker=MARKERS[number % len(MARKERS)], label=name, **look)
    first, second_share = (100 * float(share[axis : axis + 1].sum()) for axis in (0, 1))
    axes.set_xlabel(f"component 1 ({first:.0f} % of the variance)")
    axes.set_ylabel(f"component 2 ({second_share:.0f} % of the variance)")
    style.open_axes(axes, "both")
    style.add_legend(figure, title=f"{len(titles) // len(names)} tasks of each data set")
    return figure


def distances_figure(view: AblationView) -> Figure:
    """Draw the distances of FiLM between data sets, and from no FiLM: the mean encoding of each gives its FiLM."""
    names, apart = film_distances(view)
    side = 0.52 * len(names)
    figure = new_figure(side + 2.9, side + 1.5, ["Distance of FiLM between data sets", view.shared[1]])
    axes = figure.subplots()
    style.heat_map(axes, apart, (0.0, float(apart.max()) or 1.0), ".3f", size=SMALL_SIZE - 1)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    for edge in (axes.axhline, axes.axvline):
        edge(len(names) - 1.5, color="white", linewidth=2.5)
    between, moved = film_ratio(view)
    means = f"between data sets {between:.3f}, from no FiLM {moved:.3f} on average"
    figure.supxlabel(f"root mean square over gammas and betas; {means}", fontsize=SMALL_SIZE, color=INK)
    return figure


def _recall_figure(view: AblationView) -> Figure:
    recalls = {row["title"]: recall_points(view.recall(row["row"])) for row in view.rows}
    return recall_by_method(view.shared, recalls, recalls)


def _queries_figure(view: AblationView) -> Figure:
    return queries_figure(view.shared, {row["title"]: row["results"] for row in view.rows})


_LEAST_SPAN = 1.0
"""Points that the colours of a grid span at least."""


def grid_figure(view: AblationView) -> Figure:
    """Mean accuracy over data sets for every least and most number of refinement steps (fig:max-and-min)."""
    grid = 100 * view.refinement_grid()
    figure = new_figure(1.6 + 0.55 * grid.shape[1], 1.3 + 0.5 * grid.shape[0], view.shared)
    axes = figure.subplots()
    # The differences are small: the colours span them, but never so little that rounding looks like a difference.
    low, high = np.nanmin(grid.to_numpy()), np.nanmax(grid.to_numpy())
    spare = max(0.0, _LEAST_SPAN - float(high - low)) / 2
    limits = float(low) - spare, float(high) + spare
    image = style.heat_map(axes, grid.to_numpy(), limits, ".1f", size=SMALL_SIZE - 1)
    axes.set_aspect("auto")
    axes.set_xticks(range(grid.shape[1]), map(str, grid.columns))
    axes.set_yticks(range(grid.shape[0]), map(str, grid.index))
    axes.set_xlabel("most steps of refinement")
    axes.set_ylabel("least steps")
    figure.colorbar(image, ax=axes, label="mean accuracy, %", fraction=0.05, pad=0.02)
    return figure


_FIGURES: Mapping[str, Callable[[AblationView], Figure]] = {
    "encodings": encodings_figure,
    "film-distances": distances_figure,
    "grid": grid_figure,
    "recall": _recall_figure,
    "queries": _queries_figure,
}
"""By the names of their files."""
