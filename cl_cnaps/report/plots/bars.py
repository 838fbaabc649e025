"""Bars: the paper's chart (`fig:continual-learning-charts`) with one per task seen, and several models side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cl_cnaps.names import ENCODINGS, HEADS
from cl_cnaps.report.labels import in_order, labels_and_title, percent, row_name, shorten
from cl_cnaps.report.plots.panel import Panel
from cl_cnaps.report.plots.style import (
    DASHED,
    GRID,
    INK,
    OKABE_ITO,
    PANEL_TITLE_SIZE,
    SMALL_SIZE,
    accuracy_axis,
    halo,
    new_figure,
    task_colours,
    task_scale,
)

_FEW_TASKS = 12
"""Up to here every step is drawn, with whiskers, and every task is named. A longer stream shows some of its
steps and a scale instead of names: bars and whiskers a pixel wide tell nothing."""
_SHOWN_STEPS = 10


def bar_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one setting: encodings down, heads across, as in the paper; a single one fills the figure."""
    n_rows, n_columns, cells = _arrange(panels)
    n_tasks = panels[0].n_tasks
    panel_width = 4.0 if n_tasks <= 6 else 5.6
    figure = new_figure(n_columns * panel_width + 2.0, 0.5 + 2.7 * n_rows, panels[0].setting_title)
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True)
    for (row, column), axes in np.ndenumerate(grid):
        if (row, column) not in cells:
            axes.set_visible(False)
            continue
        panel = cells[row, column]
        draw_bars(axes, panel)
        accuracy_axis(axes, label=(row, column - 1) not in cells)
        axes.set_title(panel.title + "\n", fontsize=PANEL_TITLE_SIZE, color=INK, linespacing=1.1)
        axes.text(0.5, 1.025, panel.outcome, transform=axes.transAxes, ha="center", fontsize=SMALL_SIZE)
        if (row + 1, column) not in cells:
            axes.set_xlabel(_step_label(n_tasks))
    _legend(figure, grid, panels)
    return figure


def comparison_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one benchmark: the final accuracy of each model, best first, with a bar for each head."""
    heads = [head for head in reversed(HEADS) if any(panel.summary["head"] == head for panel in panels)]
    models: dict[str, dict[str, Panel]] = {}
    for panel, name in zip(panels, _names(panels), strict=True):
        models.setdefault(name, {})[panel.summary["head"]] = panel

    def final(name: str) -> float:
        shown = models[name].get(heads[0]) or next(iter(models[name].values()))
        return float(shown.summary["final_accuracy"]["mean"])

    order = sorted(models, key=final, reverse=True)
    thickness = 0.8 / len(heads)
    shared = [panel.setting_title for panel in panels if panel.summary["backbone"] not in (None, "none")]
    title = [part for part in shared[0] if all(part in other for other in shared)] if shared else []
    width = 5.2 + 0.068 * max(map(len, order))
    figure = new_figure(width, 0.9 + len(order) * (0.16 + 0.15 * len(heads)), title)
    axes = figure.subplots()
    for number, (head, colour) in enumerate(zip(heads, OKABE_ITO, strict=False)):
        for row, name in enumerate(order):
            if head not in models[name]:
                continue
            estimate = models[name][head].summary["final_accuracy"]
            mean, half = 100 * estimate["mean"], 100 * (estimate["ci95"] or 0.0)
            y = row + (number - (len(heads) - 1) / 2) * thickness
            axes.barh(y, mean, 0.92 * thickness, color=colour, label=f"{head} head" if row == 0 else None)
            if half:
                low, high = np.clip([mean - half, mean + half], 0, 100)
                axes.hlines(y, low, high, color=INK, linewidth=1.1, path_effects=halo(2.2))
            text = percent(estimate["mean"], estimate["ci95"])
            axes.text(min(mean + half, 100) + 1, y, text, va="center", fontsize=SMALL_SIZE, color=INK)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(len(order) - 0.45, -0.55)
    axes.set_xlim(0, 118)
    axes.set_xticks(range(0, 101, 20))
    runs = {panel.summary["runs"] for panel in panels}
    axes.set_xlabel("final accuracy, %" + (" (line: 95 % interval over runs)" if max(runs) > 1 else ""))
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if len(heads) > 1:
        figure.legend(loc="outside lower center", ncols=len(heads), frameon=False, fontsize=SMALL_SIZE)
    return figure


def _names(panels: Sequence[Panel]) -> list[str]:
    """What each panel's model is called; words that are not in its usual name are added where names repeat."""
    names = [row_name(panel.summary) for panel in panels]
    more, _ = labels_and_title(
        [{"name": name} | panel.words for name, panel in zip(names, panels, strict=True)]
    )
    once = len({(name, panel.summary["head"]) for name, panel in zip(names, panels, strict=True)})
    return names if once == len(panels) else more


def draw_bars(axes: Axes, panel: Panel) -> None:
    """One panel. All bars are equally wide, so a step takes the room of the tasks seen by then."""
    mean, half = panel.mean(), panel.half_intervals()
    few = panel.n_tasks <= _FEW_TASKS
    colours, steps = task_colours(panel.n_tasks), shown_steps(panel.n_tasks)
    gap = 1.2 if few else 0.06 * panel.n_tasks
    centres, left = [], 0.0
    for step in steps:
        seen = step + 1
        x, height = left + np.arange(seen) + 0.5, mean[step, :seen]
        # Bars side by side without a gap look striped where they fall between pixels; a thin edge closes it.
        width, edge = (0.92, 0.0) if few else (1.0, 0.4)
        axes.bar(x, height, width, color=colours[:seen], edgecolor=colours[:seen], linewidth=edge)
        if few and half is not None:
            low, high = height - half[step, :seen], height + half[step, :seen]
            axes.vlines(x, low.clip(0, 100), high.clip(0, 100), color=INK, linewidth=0.9, zorder=3)
        ends, average = [left, left + seen], [height.mean()] * 2
        axes.plot(ends, average, color=INK, linewidth=1.6, solid_capstyle="butt", path_effects=halo(2.3))
        centres.append(left + seen / 2)
        left += seen + gap
    right = left - gap
    if panel.paper is not None:
        level = [panel.paper["mean"]] * 2
        axes.plot([0, right], level, color=INK, linewidth=1.1, linestyle=DASHED, path_effects=halo(2.8))
    axes.set_xlim(-gap / 2, right + gap / 2)
    axes.set_xticks(centres, [str(step + 1) for step in steps])
    axes.tick_params(axis="x", length=0)


def shown_steps(n_tasks: int) -> list[int]:
    """The steps a chart has room for: all of a short stream, else evenly spaced ones up to the last."""
    if n_tasks <= _FEW_TASKS:
        return list(range(n_tasks))
    return sorted({round(n_tasks * (i + 1) / _SHOWN_STEPS) - 1 for i in range(_SHOWN_STEPS)})


def _arrange(panels: Sequence[Panel]) -> tuple[int, int, dict[tuple[int, int], Panel]]:
    """Rows and columns in use, and the panel of each cell; of two panels for one cell the first stays."""
    encodings = in_order({panel.summary["encoding"] for panel in panels}, ENCODINGS)
    heads = in_order({panel.summary["head"] for panel in panels}, HEADS)
    cells: dict[tuple[int, int], Panel] = {}
    for panel in panels:
        cell = encodings.index(panel.summary["encoding"]), heads.index(panel.summary["head"])
        cells.setdefault(cell, panel)
    return len(encodings), len(heads), cells


def _step_label(n_tasks: int) -> str:
    shown = len(shown_steps(n_tasks))
    return "tasks learned" + ("" if shown == n_tasks else f" ({shown} of {n_tasks} steps shown)")


def _legend(figure: Figure, grid: np.ndarray, panels: Sequence[Panel]) -> None:
    """Outside: the tasks by name, or a scale when they are too many; then the lines."""
    n_tasks = panels[0].n_tasks
    few = n_tasks <= _FEW_TASKS
    lines: list[Line2D | Patch] = [Line2D([], [], color=INK, linewidth=1.6, label="mean of tasks seen")]
    if few and panels[0].summary["runs"] > 1:
        lines.append(Line2D([], [], color=INK, marker="|", linestyle="", label="95 % interval over runs"))
    if any(panel.paper for panel in panels):
        lines.append(Line2D([], [], color=INK, linewidth=1.1, linestyle=DASHED, label="paper, final mean"))
    if few:
        named = enumerate(zip(task_colours(n_tasks), panels[0].task_names, strict=True), start=1)
        tasks = [Patch(color=colour, label=shorten(f"task {i}: {name}", 30)) for i, (colour, name) in named]
        figure.legend(
            handles=[*tasks, *lines], loc="outside right center", frameon=False, fontsize=SMALL_SIZE
        )
    else:
        ticks = sorted({1, *(step + 1 for step in shown_steps(n_tasks))})
        scale = ScalarMappable(Normalize(1, n_tasks), task_scale())
        figure.colorbar(scale, ax=grid, label="task", fraction=0.03, pad=0.02, ticks=ticks)
        figure.legend(
            handles=lines, loc="outside lower center", ncols=len(lines), frameon=False, fontsize=SMALL_SIZE
        )
