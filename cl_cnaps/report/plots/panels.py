"""Charts of streams with bars and lines: after every task, at the end, and against the number of tasks.

A panel is one model, encoding and head on one stream. The paper's chart is `fig:continual-learning-charts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cl_cnaps.metrics.continual import accuracy_by_step
from cl_cnaps.metrics.intervals import Array, interval95
from cl_cnaps.names import ENCODINGS, HEADS
from cl_cnaps.records.record import config_digest
from cl_cnaps.report.labels import (
    adaptation_words,
    count,
    distinguish,
    in_order,
    labels_and_title,
    method_name,
    paper_cell,
    percent,
    row_name,
    shorten,
)
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.style import DASHED, INK, OKABE_ITO, SMALL_SIZE, accuracy_axis, halo, new_figure
from cl_cnaps.report.stream import StreamView, is_fscil, usual_accuracy
from cl_cnaps.report.view import Row

_FEW_TASKS = 12
"""Up to here every step is drawn, with whiskers, and every task is named. A longer stream shows some of its
steps and a scale instead of names: bars and whiskers a pixel wide tell nothing."""
_SHOWN_STEPS = 10


@dataclass(frozen=True)
class Panel:
    """Accuracies in per cent for drawing, and the words around them."""

    view: StreamView
    row: Row
    """Of the head that is drawn."""
    accuracy: Array
    """A[run, step, task], per cent; NaN where the task had not been seen."""

    @property
    def n_tasks(self) -> int:
        """Length of the stream."""
        return int(self.accuracy.shape[2])

    @property
    def setting(self) -> str:
        """A digest that panels share which differ in nothing but encoding and head."""
        config = self.view.record.config
        return config_digest({k: v for k, v in config.items() if k not in ("encoding", "head", "heads")})

    @property
    def title(self) -> str:
        """`First encoding, single head`."""
        encoding, head = self.row["encoding"], f"{self.row['head']} head"
        return f"{encoding.capitalize()} encoding, {head}" if encoding else head.capitalize()

    @property
    def outcome(self) -> str:
        """`final mean 85.5 ± 0.4 %; paper 69.5 ± 1.0 %`."""
        final = self.row["final_accuracy"]
        ours = f"final mean {percent(final['mean'], final['ci95'])} %"
        return ours + (f"; paper {paper_cell(self.row['paper'])} %" if self.row["paper"] else "")

    @property
    def words(self) -> dict[str, str]:
        """Model, encoding, backbone, adaptation, shots and runs; empty where there is none."""
        row = self.row
        return {
            "model": method_name(row),
            "encoding": f"{row['encoding']} encoding" if row["encoding"] else "",
            "backbone": row["backbone"] or "",
            "features": adaptation_words(row["adaptation"]),
            "shots": count(row["shots"], "shot"),
            "runs": count(row["runs"], "run"),
        }

    @property
    def circumstances(self) -> list[str]:
        """Backbone, adaptation, shots and runs, where there are any."""
        return [word for key, word in self.words.items() if word and key not in ("model", "encoding")]

    @property
    def setting_title(self) -> list[str]:
        """Benchmark, model, backbone, adaptation, shots and runs: what panels of one setting share."""
        return [self.row["benchmark"], self.words["model"], *self.circumstances]

    def mean(self) -> Array:
        """Mean over runs, steps x tasks."""
        return np.asarray(self.accuracy.mean(axis=0))

    def half_intervals(self) -> Array | None:
        """Half the 95 % interval over runs, steps x tasks; None for a single run."""
        return interval95(self.accuracy)

    @property
    def averaged(self) -> str:
        """What the accuracy of a step is taken over."""
        return "over all images seen" if is_fscil(self.row) else "mean of tasks seen"

    def by_step(self) -> tuple[Array, Array | None]:
        """Mean over the tasks seen, or over their images, for every step: over runs, and half the 95 % interval."""
        if is_fscil(self.row):
            found = self.row["accuracy_by_step"]
            half = found["ci95"]
            return 100 * np.asarray(found["mean"]), None if half is None else 100 * np.asarray(half)
        by_step = accuracy_by_step(self.accuracy)
        return np.asarray(by_step.mean(axis=0)), interval95(by_step)


def panels_of(view: StreamView) -> list[Panel]:
    """One panel per head of a record."""
    return [Panel(view, row, 100 * view.accuracy(row["head"])) for row in view.rows]


def bar_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one setting: encodings down, heads across, as in the paper; a single one fills the figure."""
    encodings = in_order({panel.row["encoding"] for panel in panels}, ENCODINGS)
    heads = in_order({panel.row["head"] for panel in panels}, HEADS)
    cells: dict[tuple[int, int], Panel] = {}
    for panel in panels:  # of two for one cell the first stays
        cells.setdefault((encodings.index(panel.row["encoding"]), heads.index(panel.row["head"])), panel)
    n_tasks = panels[0].n_tasks
    width = len(heads) * (4.0 if n_tasks <= 6 else 5.6) + 2.0
    figure = new_figure(width, 0.5 + 2.7 * len(encodings), panels[0].setting_title)
    grid = figure.subplots(len(encodings), len(heads), squeeze=False, sharey=True)
    shown = len(shown_steps(n_tasks))
    steps = "tasks learned" + ("" if shown == n_tasks else f" ({shown} of {n_tasks} steps shown)")
    for (row, column), axes in np.ndenumerate(grid):
        if (row, column) not in cells:
            axes.set_visible(False)
            continue
        panel = cells[row, column]
        draw_bars(axes, panel)
        accuracy_axis(axes, label=(row, column - 1) not in cells)
        axes.set_title(panel.title + "\n", fontsize=style.PANEL_TITLE_SIZE, color=INK, linespacing=1.1)
        axes.text(0.5, 1.025, panel.outcome, transform=axes.transAxes, ha="center", fontsize=SMALL_SIZE)
        if (row + 1, column) not in cells:
            axes.set_xlabel(steps)
    _bar_legend(figure, grid, panels)
    return figure


def draw_bars(axes: Axes, panel: Panel) -> None:
    """One panel. All bars are equally wide, so a step takes the room of the tasks seen by then."""
    mean, half = panel.mean(), panel.half_intervals()
    few = panel.n_tasks <= _FEW_TASKS
    colours, steps = style.task_colours(panel.n_tasks), shown_steps(panel.n_tasks)
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
    if panel.row["paper"] is not None:
        level = [panel.row["paper"]["mean"]] * 2
        axes.plot([0, right], level, color=INK, linewidth=1.1, linestyle=DASHED, path_effects=halo(2.8))
    axes.set_xlim(-gap / 2, right + gap / 2)
    axes.set_xticks(centres, [str(step + 1) for step in steps])
    axes.tick_params(axis="x", length=0)


def shown_steps(n_tasks: int) -> list[int]:
    """Return the steps a chart has room for: all of a short stream, else evenly spaced ones up to the last."""
    if n_tasks <= _FEW_TASKS:
        return list(range(n_tasks))
    return sorted({round(n_tasks * (i + 1) / _SHOWN_STEPS) - 1 for i in range(_SHOWN_STEPS)})


def _bar_legend(figure: Figure, grid: np.ndarray, panels: Sequence[Panel]) -> None:
    """Outside: the tasks by name, or a scale when they are too many; then the lines."""
    n_tasks = panels[0].n_tasks
    few = n_tasks <= _FEW_TASKS
    lines: list[Line2D | Patch] = [Line2D([], [], color=INK, linewidth=1.6, label="mean of tasks seen")]
    if few and panels[0].row["runs"] > 1:
        lines.append(Line2D([], [], color=INK, marker="|", linestyle="", label="95 % interval over runs"))
    if any(panel.row["paper"] for panel in panels):
        lines.append(Line2D([], [], color=INK, linewidth=1.1, linestyle=DASHED, label="paper, final mean"))
    if few:
        named = enumerate(zip(style.task_colours(n_tasks), panels[0].view.task_names, strict=True), start=1)
        tasks = [Patch(color=colour, label=shorten(f"task {i}: {name}", 30)) for i, (colour, name) in named]
        style.add_legend(figure, handles=[*tasks, *lines], handlelength=None)
    else:
        ticks = sorted({1, *(step + 1 for step in shown_steps(n_tasks))})
        scale = ScalarMappable(Normalize(1, n_tasks), style.task_scale())
        figure.colorbar(scale, ax=grid, label="task", fraction=0.03, pad=0.02, ticks=ticks)
        style.add_legend(figure, "lower center", handles=lines, ncols=len(lines), handlelength=None)


def comparison_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one benchmark: the final accuracy of each model, best first, with a bar for each head."""
    heads = [head for head in reversed(HEADS) if any(panel.row["head"] == head for panel in panels)]
    models: dict[str, dict[str, tuple[float, float | None]]] = {}
    for panel, name in zip(panels, _names(panels), strict=True):
        models.setdefault(name, {})[panel.row["head"]] = usual_accuracy(panel.row)

    def final(name: str) -> float:
        return (models[name].get(heads[0]) or next(iter(models[name].values())))[0]

    order = sorted(models, key=final, reverse=True)
    thickness = 0.8 / len(heads)
    shared = [panel.setting_title for panel in panels if panel.row["backbone"] not in (None, "none")]
    title = [part for part in shared[0] if all(part in other for other in shared)] if shared else []
    width = 5.2 + 0.068 * max(map(len, order))
    figure = new_figure(width, 0.9 + len(order) * (0.16 + 0.15 * len(heads)), title)
    axes = figure.subplots()
    for number, (head, colour) in enumerate(zip(heads, OKABE_ITO, strict=False)):
        for row, name in enumerate(order):
            if (estimate := models[name].get(head)) is None:
                continue
            mean, half = 100 * estimate[0], 100 * (estimate[1] or 0.0)
            y = row + (number - (len(heads) - 1) / 2) * thickness
            axes.barh(y, mean, 0.92 * thickness, color=colour, label=f"{head} head" if row == 0 else None)
            if half:
                low, high = np.clip([mean - half, mean + half], 0, 100)
                axes.hlines(y, low, high, color=INK, linewidth=1.1, path_effects=halo(2.2))
            text = percent(*estimate)
            axes.text(min(mean + half, 100) + 1, y, text, va="center", fontsize=SMALL_SIZE, color=INK)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(len(order) - 0.45, -0.55)
    axes.set_xlim(0, 118)
    axes.set_xticks(range(0, 101, 20))
    several = max(panel.row["runs"] for panel in panels) > 1
    what = "final accuracy over images, %" if is_fscil(panels[0].row) else "final accuracy, %"
    axes.set_xlabel(what + (" (line: 95 % interval over runs)" if several else ""))
    style.open_axes(axes, "x")
    axes.tick_params(axis="y", length=0)
    if len(heads) > 1:
        style.add_legend(figure, "lower center", ncols=len(heads), handlelength=None)
    return figure


def _names(panels: Sequence[Panel]) -> list[str]:
    """Return the name of each panel's model; words that are not in its usual name are added where names repeat."""
    names = [row_name(panel.row) for panel in panels]
    if len({(name, panel.row["head"]) for name, panel in zip(names, panels, strict=True)}) == len(panels):
        return names
    return labels_and_title([{"name": n} | panel.words for n, panel in zip(names, panels, strict=True)])[0]


_MOST_MARKED_STEPS = 20
_LABEL_WIDTH = 48
_MOST_BANDS = 4
"""More bands than these cover one another: then a line has its interval at its end alone."""


def step_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one benchmark: one plot per head, a line with its 95 % band for every model and encoding."""
    heads = in_order({panel.row["head"] for panel in panels}, HEADS)
    labels, shared = line_labels(panels)
    distinct = list(dict.fromkeys(labels))
    looks = {label: style.line_look(i, (*OKABE_ITO, INK)) for i, label in enumerate(distinct)}
    width = len(heads) * 4.0 + 1.0 + 0.07 * min(max(map(len, labels)), _LABEL_WIDTH)
    figure = new_figure(width, max(3.4, 1.2 + 0.19 * len(looks)), [panels[0].row["benchmark"], *shared])
    grid = figure.subplots(1, len(heads), squeeze=False, sharey=True)
    for axes, head in zip(grid.flat, heads, strict=True):
        lines = [(p, label) for p, label in zip(panels, labels, strict=True) if p.row["head"] == head]
        for panel, label in lines:
            # How far beyond the last step a line's interval stands, as a part of the axis, where bands are too many.
            beside = 0.02 + 0.06 * distinct.index(label) / len(looks) if len(looks) > _MOST_BANDS else None
            _draw_line(axes, panel, looks[label], beside)
            _draw_paper(axes, panel, looks[label], alone=len(looks) == 1)
        accuracy_axis(axes, label=head == heads[0])
        axes.set_title(f"{str(head).capitalize()} head", fontsize=style.PANEL_TITLE_SIZE, color=INK)
        axes.set_xlabel("tasks learned")
        axes.set_xticks(style.step_ticks(max(panel.n_tasks for panel, _ in lines)))
    _step_legend(figure, panels, labels, looks)
    return figure


def line_labels(panels: Sequence[Panel]) -> tuple[list[str], list[str]]:
    """Return what distinguishes the lines, one label per panel, and what they all share, for the title."""
    words = [panel.words for panel in panels]
    labels, shared = labels_and_title(words)
    if {"model"} <= set(distinguish(words)[0]) <= {"model", "encoding", "features"}:
        return _names(panels), shared
    if not any(labels):
        return [panels[0].averaged] * len(panels), shared
    model = words[0]["model"]
    if model in shared and not all(row["encoding"] for row in words):  # a line needs a name of its own
        shared.remove(model)
        labels = [", ".join(filter(None, (model, label))) for label in labels]
    return labels, shared


def _draw_line(axes: Axes, panel: Panel, look: dict[str, Any], beside: float | None) -> None:
    mean, half = panel.by_step()
    steps = range(1, panel.n_tasks + 1)
    if half is not None and beside is not None:
        low, high = np.clip([mean[-1] - half[-1], mean[-1] + half[-1]], 0, 100)
        axes.vlines(
            steps[-1] + beside * max(len(steps) - 1, 1), low, high, color=look["color"], linewidth=1.4
        )
        half = None
    style.band_line(axes, steps, mean, half, band=0.15, **_marked(look, panel))


def _marked(look: dict[str, Any], panel: Panel) -> dict[str, Any]:
    """The look of a line, with markers where they do not cover one another."""
    return look | {"markersize": 3.5} | ({} if panel.n_tasks <= _MOST_MARKED_STEPS else {"marker": ""})


def _draw_paper(axes: Axes, panel: Panel, look: dict[str, Any], *, alone: bool) -> None:
    """The paper's final mean: a dashed line beside a single curve, else the curve's marker, hollow."""
    if panel.row["paper"] is None:
        return
    level, end = panel.row["paper"]["mean"], panel.n_tasks
    if alone:
        axes.plot([1, end], [level, level], color=INK, linewidth=1.1, linestyle=DASHED)
    else:
        at = end + 0.04 * max(end - 1, 1)
        axes.plot(
            at, level, color=look["color"], marker=look["marker"], markersize=5.5, markerfacecolor="white"
        )


def _step_legend(
    figure: Figure, panels: Sequence[Panel], labels: Sequence[str], looks: dict[str, dict[str, Any]]
) -> None:
    """Outside on the right, best first, so that it reads like the right ends of the lines."""
    final: dict[str, list[float]] = {}
    for panel, label in zip(panels, labels, strict=True):
        final.setdefault(label, []).append(usual_accuracy(panel.row)[0])
    best_first = sorted(final, key=lambda label: -float(np.mean(final[label])))
    handles = [Line2D([], [], **_marked(looks[label], panels[0])) for label in best_first]
    names = [shorten(label, _LABEL_WIDTH) for label in best_first]
    if any(panel.row["paper"] for panel in panels):
        if len(looks) == 1:
            handles.append(Line2D([], [], color=INK, linestyle=DASHED, linewidth=1.1))
            names.append("paper, final mean")
        else:
            handles.append(Line2D([], [], color=INK, linestyle="", marker="o", mfc="white", markersize=5.5))
            names.append("hollow: paper, final mean")
    runs = {panel.row["runs"] for panel in panels}
    shown = "band" if len(looks) <= _MOST_BANDS else "upright line"
    over = count(min(runs), "run") if len(runs) == 1 else "runs"
    title = [panels[0].averaged] * (len(looks) > 1) + [f"{shown}: 95 % over {over}"] * (max(runs) > 1)
    style.add_legend(figure, handles=handles, labels=names, title="\n".join(title), handlelength=3.4)
