"""Figures of streams: which panels share one, heat maps, confusions, and models against the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from cl_cnaps.errors import BadInputError
from cl_cnaps.names import HEADS, PAPER_BENCHMARKS
from cl_cnaps.records.record import record_name
from cl_cnaps.report.labels import in_order, row_name, shorten
from cl_cnaps.report.plots.bars import bar_figure, comparison_figure
from cl_cnaps.report.plots.panel import Panel, panels_of
from cl_cnaps.report.plots.steps import step_figure
from cl_cnaps.report.plots.style import (
    FORMATS,
    INK,
    OKABE_ITO,
    PANEL_TITLE_SIZE,
    SMALL_SIZE,
    chart_settings,
    ink_on,
    new_figure,
    open_axes,
    save,
    step_ticks,
)
from cl_cnaps.report.standings import short_standings
from cl_cnaps.report.stream import StreamView

KINDS = ("bars", "steps", "heatmap", "comparison", "confusion")
_MOST_NUMBERED_TASKS = 12
_MOST_NAMED_TASKS = 20
_NAME_WIDTH = 30


def heatmap_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one record, heads side by side."""
    n_tasks = panels[0].n_tasks
    side = float(np.clip(0.4 * n_tasks, 2.4, 4.8))
    longest = max(map(len, _task_labels(panels[0])))
    width = len(panels) * (side + 0.15) + 1.3 + 0.075 * longest
    figure = new_figure(max(width, 5.0), side + 1.1, panels[0].setting_title)
    figure.set_layout_engine("compressed")  # square cells: keep the panels together
    heads = in_order({panel.summary["head"] for panel in panels}, HEADS)
    ordered = sorted(panels, key=lambda panel: heads.index(panel.summary["head"]))
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axes, panel in zip(grid.flat, ordered, strict=True):
        image = draw_heatmap(axes, panel)
        axes.set_title(panel.title, fontsize=PANEL_TITLE_SIZE, color=INK)
        axes.set_xlabel("tasks learned")
    grid[0, 0].set_ylabel("task")
    figure.colorbar(image, ax=grid, label="accuracy, %", fraction=0.05, pad=0.02)
    return figure


def draw_heatmap(axes: Axes, panel: Panel) -> AxesImage:
    """Rows are tasks, columns steps; the empty triangle is what had not been seen."""
    n_tasks, values = panel.n_tasks, panel.mean().T
    scale = matplotlib.colormaps["viridis"]
    image = axes.imshow(values, cmap=scale, vmin=0, vmax=100, aspect="equal", interpolation="nearest")
    if n_tasks <= _MOST_NUMBERED_TASKS:
        for task, step in ((i, t) for i in range(n_tasks) for t in range(i, n_tasks)):
            value = values[task, step]
            ink = ink_on(scale(value / 100))
            axes.text(step, task, f"{value:.0f}", ha="center", va="center", fontsize=SMALL_SIZE, color=ink)
    steps = step_ticks(n_tasks)
    axes.set_xticks([step - 1 for step in steps], [str(step) for step in steps])
    labels = _task_labels(panel)
    rows = steps if n_tasks > _MOST_NAMED_TASKS else range(1, n_tasks + 1)
    axes.set_yticks([row - 1 for row in rows], [labels[row - 1] for row in rows])
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    return image


def _task_labels(panel: Panel) -> list[str]:
    """Number and name; the number alone where there is no room for all names."""
    if panel.n_tasks > _MOST_NAMED_TASKS:
        return [str(i + 1) for i in range(panel.n_tasks)]
    return [shorten(f"{i}: {name}", _NAME_WIDTH) for i, name in enumerate(panel.task_names, start=1)]


_MOST_NUMBERED_CLASSES = 12
_MOST_NAMED_CLASSES = 40
_CLASS_WIDTH = 18


def confusion_figure(panels: Sequence[Panel]) -> Figure:
    """The panel of one record whose classes compete most: rows are right classes, columns what they were taken for."""
    panel = next((one for one in panels if one.summary["head"] == "single"), panels[0])
    assert panel.confusion is not None
    names, counts = panel.confusion
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(0.3 * len(names), 2.8, 6.4))
    title = [panel.summary["benchmark"], row_name(panel.summary), f"{panel.summary['head']} head"]
    figure = new_figure(side + 2.2, side + 1.1, [*title, *panel.circumstances])
    axes = figure.subplots()
    scale = matplotlib.colormaps["viridis"]
    image = axes.imshow(shares, cmap=scale, vmin=0, vmax=100, interpolation="nearest")
    if len(names) <= _MOST_NUMBERED_CLASSES:
        for row, column in np.ndindex(*shares.shape):
            if counts[row, column]:
                ink = ink_on(scale(shares[row, column] / 100))
                text = f"{shares[row, column]:.0f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=SMALL_SIZE, color=ink)
    # Lines between tasks: what crosses them are classes taken for those of another task.
    for end in np.cumsum(panel.classes_per_task)[:-1] if sum(panel.classes_per_task) == len(names) else ():
        axes.axhline(end - 0.5, color="white", linewidth=0.7)
        axes.axvline(end - 0.5, color="white", linewidth=0.7)
    few = len(names) <= _MOST_NAMED_CLASSES
    ticks = range(len(names)) if few else range(0, len(names), max(1, len(names) // 10))
    labels = [shorten(names[i], _CLASS_WIDTH) if few else str(i + 1) for i in ticks]
    axes.set_xticks(list(ticks), labels, rotation=90 if few else 0)
    axes.set_yticks(list(ticks), labels)
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    unit = "" if few else ", by order of learning"
    axes.set_xlabel(f"predicted class{unit}", color=INK)
    axes.set_ylabel(f"right class{unit}", color=INK)
    figure.colorbar(image, ax=axes, label="queries of the class, %", fraction=0.05, pad=0.02)
    return figure


_HEADS = {"single": OKABE_ITO[0], "multi": OKABE_ITO[1]}
_SHIFT = {"single": -0.14, "multi": 0.14}


def draw_models(views: Sequence[StreamView], folder: Path, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw the figure `models` into `folder`."""
    with chart_settings():
        return save(models_figure(views), folder, "models", formats)


def models_figure(views: Sequence[StreamView]) -> Figure:
    """Each CNAPS model with the paper's number on the same line, and the best rivals; 95 % intervals over runs."""
    frame = short_standings(views)
    here = frame[frame["kind"] == "here"]
    if here.empty:
        raise BadInputError("there is no stream of the paper's benchmarks to draw")
    labels = list(dict.fromkeys(here["label"]))
    line_of = {label: index for index, label in enumerate(labels)}
    family = dict(zip(here["family"], here["label"], strict=True))
    backbones = dict.fromkeys(
        row["backbone"] for view in views for row in view.rows if row["backbone"] not in (None, "none")
    )
    figure = new_figure(
        9.6, 0.95 + 0.36 * len(labels), ["Final accuracy, %", *backbones, "100 shots a class, 95 % intervals"]
    )
    panels = figure.subplots(1, len(PAPER_BENCHMARKS), sharey=True, squeeze=False)
    for axes, (benchmark, title) in zip(panels.flat, PAPER_BENCHMARKS.items(), strict=True):
        for line in frame[frame["benchmark"] == benchmark].to_dict("records"):
            paper = line["kind"] == "paper"
            label = family.get(line["family"]) if paper else line["label"]
            if label is None:
                continue
            y, colour = line_of[label] + _SHIFT[line["head"]], _HEADS[line["head"]]
            mean, half = 100 * line["mean"], 100 * (line["half"] or 0.0)
            axes.hlines(y, max(0, mean - half), min(100, mean + half), color=INK, linewidth=1.1, zorder=2)
            look = {"marker": "D", "markerfacecolor": "white"} if paper else {"marker": "o"}
            axes.plot(mean, y, color=colour, markersize=5.0 if paper else 6.0, zorder=3, **look)
        axes.set_title(title, fontsize=PANEL_TITLE_SIZE, color=INK)
        axes.set_xlim(0, 102)
        axes.set_xticks(range(0, 101, 20))
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.5, -0.5)
        open_axes(axes, "x")
        axes.tick_params(axis="y", length=0, labelsize=SMALL_SIZE)
        axes.tick_params(axis="x", labelsize=SMALL_SIZE)
        axes.spines["left"].set_visible(False)
    figure.legend(
        handles=[
            Line2D([], [], color=colour, marker=marker, linestyle="", label=f"{head} head, {whose}", mfc=face)
            for whose, marker, hollow in (("here", "o", False), ("paper (ResNet-18)", "D", True))
            for head, colour in _HEADS.items()
            for face in ("white" if hollow else colour,)
        ],
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=SMALL_SIZE,
    )
    return figure


_DRAW: dict[str, Callable[[Sequence[Panel]], Figure]] = {
    "bars": bar_figure,
    "steps": step_figure,
    "heatmap": heatmap_figure,
    "comparison": comparison_figure,
    "confusion": confusion_figure,
}


def draw_streams(
    records: Sequence[StreamView],
    folder: Path,
    *,
    kinds: Sequence[str] = KINDS,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Draw records together into `folder`.

    Bars: records that differ in encoding only share a grid, encodings down and heads across. Steps: records
    of one benchmark share a figure, a line each. Comparison: the models of one benchmark, a bar for each head. Heat
    maps and confusions: one figure per record. A file is called after its
    kind, with benchmark, model and encoding added where the kind gives more than one figure.
    """
    _check("kind", kinds, KINDS)
    _check("format", formats, FORMATS)
    if not records:
        raise BadInputError("there is no record to draw")
    paths = []
    with chart_settings():
        for kind in kinds:
            groups = _grouped(records, kind)
            for suffix, panels in zip(_suffixes(groups), groups, strict=True):
                paths += save(_DRAW[kind](panels), folder, kind + suffix, formats)
    return paths


def _grouped(records: Sequence[StreamView], kind: str) -> list[list[Panel]]:
    """The panels of every figure of one kind."""
    groups: dict[str, list[Panel]] = {}
    for record in records:
        for panel in panels_of(record):
            benchmark = str(panel.summary["benchmark"])
            keys = {"bars": panel.setting, "heatmap": str(record.path), "confusion": str(record.path)}
            groups.setdefault(keys.get(kind, benchmark), []).append(panel)
    if kind == "confusion":  # records made before they had such a table have none
        groups = {key: panels for key, panels in groups.items() if panels[0].confusion is not None}
    if kind == "comparison":  # of one model there is nothing to compare
        groups = {
            key: panels
            for key, panels in groups.items()
            if len({row_name(panel.summary) for panel in panels}) > 1
        }
    return list(groups.values())


def _suffixes(groups: Sequence[Sequence[Panel]]) -> list[str]:
    """Nothing for a lone figure; else the words that name each, and a number where words repeat."""
    if len(groups) == 1:
        return [""]
    words = []
    for panels in groups:
        shared = [{panel.summary[key] for panel in panels} for key in ("benchmark", "model", "encoding")]
        words.append(record_name("-".join(values.pop() or "" for values in shared if len(values) == 1)))
    return [
        f"-{word}-{words[:i].count(word) + 1}" if words.count(word) > 1 else f"-{word}"
        for i, word in enumerate(words)
    ]


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    if not given:
        raise BadInputError(f"no {what} was given; known: {', '.join(known)}")
    for value in given:
        if value not in known:
            raise BadInputError(f"unknown {what} {value!r}; known: {', '.join(known)}")
