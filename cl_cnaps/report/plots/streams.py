"""Figures of streams: which panels share one, heat maps, confusions, and models against the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from cl_cnaps.errors import BadInputError
from cl_cnaps.names import HEADS, PAPER_BENCHMARKS
from cl_cnaps.records.record import record_name
from cl_cnaps.report.labels import in_order, row_name, shorten
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.panels import Panel, bar_figure, comparison_figure, panels_of, step_figure
from cl_cnaps.report.plots.style import INK, OKABE_ITO, PANEL_TITLE_SIZE, SMALL_SIZE, new_figure
from cl_cnaps.report.standings import short_standings
from cl_cnaps.report.stream import StreamView

_MOST_NUMBERED = 12
"""Tasks or classes whose cells have numbers in them."""
_MOST_NAMED_TASKS = 20
_MOST_NAMED_CLASSES = 40


def heatmap_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one record, heads side by side."""
    side = float(np.clip(0.4 * panels[0].n_tasks, 2.4, 4.8))
    width = len(panels) * (side + 0.15) + 1.3 + 0.075 * max(map(len, _task_labels(panels[0])))
    figure = new_figure(max(width, 5.0), side + 1.1, panels[0].setting_title)
    figure.set_layout_engine("compressed")  # square cells: keep the panels together
    heads = in_order({panel.row["head"] for panel in panels}, HEADS)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    ordered = sorted(panels, key=lambda panel: heads.index(panel.row["head"]))
    for axes, panel in zip(grid.flat, ordered, strict=True):
        image = draw_heatmap(axes, panel)
        axes.set_title(panel.title, fontsize=PANEL_TITLE_SIZE, color=INK)
        axes.set_xlabel("tasks learned")
    grid[0, 0].set_ylabel("task")
    figure.colorbar(image, ax=grid, label="accuracy, %", fraction=0.05, pad=0.02)
    return figure


def draw_heatmap(axes: Axes, panel: Panel) -> AxesImage:
    """Rows are tasks, columns steps; the empty triangle is what had not been seen."""
    n_tasks = panel.n_tasks
    image = style.heat_map(axes, panel.mean().T, (0, 100), ".0f" if n_tasks <= _MOST_NUMBERED else "")
    steps, labels = style.step_ticks(n_tasks), _task_labels(panel)
    axes.set_xticks([step - 1 for step in steps], [str(step) for step in steps])
    rows = steps if n_tasks > _MOST_NAMED_TASKS else range(1, n_tasks + 1)
    axes.set_yticks([row - 1 for row in rows], [labels[row - 1] for row in rows])
    return image


def _task_labels(panel: Panel) -> list[str]:
    """Number and name; the number alone where there is no room for all names."""
    if panel.n_tasks > _MOST_NAMED_TASKS:
        return [str(i + 1) for i in range(panel.n_tasks)]
    return [shorten(f"{i}: {name}", 30) for i, name in enumerate(panel.view.task_names, start=1)]


def confusion_figure(panels: Sequence[Panel]) -> Figure:
    """The panel of one record whose classes compete most: rows are right classes, columns what they were taken for."""
    panel = next((one for one in panels if one.row["head"] == "single"), panels[0])
    confusion = panel.view.confusion(panel.row["head"])
    assert confusion is not None
    names, counts = confusion
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(0.3 * len(names), 2.8, 6.4))
    title = [panel.row["benchmark"], row_name(panel.row), f"{panel.row['head']} head"]
    figure = new_figure(side + 2.2, side + 1.1, [*title, *panel.circumstances])
    axes = figure.subplots()
    form = ".0f" if len(names) <= _MOST_NUMBERED else ""
    image = style.heat_map(axes, shares, (0, 100), form, written=counts > 0)
    # Lines between tasks: what crosses them are classes taken for those of another task.
    sizes = [len(task) for task in panel.view.record.config["tasks"]]
    for end in np.cumsum(sizes)[:-1] if sum(sizes) == len(names) else ():
        axes.axhline(end - 0.5, color="white", linewidth=0.7)
        axes.axvline(end - 0.5, color="white", linewidth=0.7)
    few = len(names) <= _MOST_NAMED_CLASSES
    ticks = range(0, len(names), 1 if few else max(1, len(names) // 10))
    labels = [shorten(names[i], 18) if few else str(i + 1) for i in ticks]
    axes.set_xticks(list(ticks), labels, rotation=90 if few else 0)
    axes.set_yticks(list(ticks), labels)
    unit = "" if few else ", by order of learning"
    axes.set_xlabel(f"predicted class{unit}", color=INK)
    axes.set_ylabel(f"right class{unit}", color=INK)
    figure.colorbar(image, ax=axes, label="queries of the class, %", fraction=0.05, pad=0.02)
    return figure


_HEADS = {"single": (OKABE_ITO[0], -0.14), "multi": (OKABE_ITO[1], 0.14)}
"""Colour, and how far from the middle of a model's line."""


def models_figure(views: Sequence[StreamView]) -> Figure:
    """Draw each CNAPS model with the paper's number on the same line, and the best rivals; 95 % intervals over runs."""
    frame = short_standings(views)
    here = frame[frame["kind"] == "here"]
    if here.empty:
        raise BadInputError("there is no stream of the paper's benchmarks to draw")
    labels = list(dict.fromkeys(here["label"]))
    family = dict(zip(here["family"], here["label"], strict=True))
    backbones = dict.fromkeys(
        row["backbone"] for view in views for row in view.rows if row["backbone"] not in (None, "none")
    )
    title = ["Final accuracy, %", *backbones, "100 shots a class, 95 % intervals"]
    figure = new_figure(9.6, 0.95 + 0.36 * len(labels), title)
    panels = figure.subplots(1, len(PAPER_BENCHMARKS), sharey=True, squeeze=False)
    for axes, (benchmark, name) in zip(panels.flat, PAPER_BENCHMARKS.items(), strict=True):
        for line in frame[frame["benchmark"] == benchmark].to_dict("records"):
            paper = line["kind"] == "paper"
            label = family.get(line["family"]) if paper else line["label"]
            if label is None:
                continue
            colour, shift = _HEADS[line["head"]]
            y, mean, half = labels.index(label) + shift, 100 * line["mean"], 100 * (line["half"] or 0.0)
            axes.hlines(y, max(0, mean - half), min(100, mean + half), color=INK, linewidth=1.1, zorder=2)
            look: dict[str, Any] = {"marker": "D", "markerfacecolor": "white"} if paper else {"marker": "o"}
            axes.plot(mean, y, color=colour, markersize=5.0 if paper else 6.0, zorder=3, **look)
        axes.set_title(name, fontsize=PANEL_TITLE_SIZE, color=INK)
        axes.set_xlim(-3, 103)
        axes.set_xticks(range(0, 101, 20))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        style.open_axes(axes, "x")
        axes.tick_params(axis="y", length=0, labelsize=SMALL_SIZE)
        axes.tick_params(axis="x", labelsize=SMALL_SIZE)
        axes.spines["left"].set_visible(False)
    handles = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linestyle="",
            label=f"{head} head, {whose}",
            mfc=face or colour,
        )
        for whose, marker, face in (("here", "o", None), ("paper (ResNet-18)", "D", "white"))
        for head, (colour, _) in _HEADS.items()
    ]
    style.add_legend(figure, "lower center", handles=handles, ncols=4, handlelength=None)
    return figure


_DRAW: dict[str, Callable[[Sequence[Panel]], Figure]] = {
    "bars": bar_figure,
    "steps": step_figure,
    "heatmap": heatmap_figure,
    "comparison": comparison_figure,
    "confusion": confusion_figure,
}
KINDS = tuple(_DRAW)


def stream_figures(views: Sequence[StreamView], kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, Figure]]:
    """Yield the figures of records that are drawn together, with their names.

    Bars: records that differ in encoding only share a grid, encodings down and heads across. Steps: records
    of one benchmark share a figure, a line each. Comparison: the models of one benchmark, a bar for each head. Heat
    maps and confusions: one figure per record. A figure is called after its
    kind, with benchmark, model and encoding added where the kind gives more than one figure.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise BadInputError(f"unknown kind {kind!r}; known: {', '.join(KINDS)}")
        groups = _grouped(views, kind)
        for suffix, panels in zip(_suffixes(groups), groups, strict=True):
            yield kind + suffix, _DRAW[kind](panels)


def _grouped(records: Sequence[StreamView], kind: str) -> list[list[Panel]]:
    """The panels of every figure of one kind."""
    groups: dict[str, list[Panel]] = {}
    for record in records:
        if kind == "confusion" and record.confusion("single") is None:  # made before there was such a table
            continue
        for panel in panels_of(record):
            keys = {"bars": panel.setting, "heatmap": str(record.path), "confusion": str(record.path)}
            groups.setdefault(keys.get(kind, str(panel.row["benchmark"])), []).append(panel)
    several = kind == "comparison"  # of one model there is nothing to compare
    return [some for some in groups.values() if len({row_name(one.row) for one in some}) > several]


def _suffixes(groups: Sequence[Sequence[Panel]]) -> list[str]:
    """Return the endings of figure names: none for a lone figure, else words, and a number where words repeat."""
    if len(groups) == 1:
        return [""]
    words = []
    for panels in groups:
        shared = [{panel.row[key] for panel in panels} for key in ("benchmark", "model", "encoding")]
        words.append(record_name("-".join(values.pop() or "" for values in shared if len(values) == 1)))
    return [
        f"-{word}-{words[:i].count(word) + 1}" if words.count(word) > 1 else f"-{word}"
        for i, word in enumerate(words)
    ]
