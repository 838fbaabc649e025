"""Accuracy against step: the mean over the tasks seen, one line per model and encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cl_cnaps.names import HEADS
from cl_cnaps.report.labels import count, in_order, labels_and_title, shorten
from cl_cnaps.report.plots.panel import Panel
from cl_cnaps.report.plots.style import (
    DASHED,
    INK,
    MARKERS,
    OKABE_ITO,
    PANEL_TITLE_SIZE,
    SMALL_SIZE,
    accuracy_axis,
    new_figure,
    step_ticks,
)

_MOST_MARKED_STEPS = 20
_LABEL_WIDTH = 48
_MOST_BANDS = 4
"""More bands than these cover one another: then a line has its interval at its end alone."""
_DASHES = ((0, ()), (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


@dataclass(frozen=True)
class _Look:
    """The look of a line: colour, dash and marker, since colours repeat among many."""

    colour: str
    dash: tuple[float, tuple[float, ...]]
    marker: str


def step_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one benchmark: one plot per head, a line with its 95 % band for every model and encoding."""
    heads = in_order({panel.summary["head"] for panel in panels}, HEADS)
    labels, shared = line_labels(panels)
    looks = _looks(list(dict.fromkeys(labels)))
    width = len(heads) * 4.0 + 1.0 + 0.07 * min(max(map(len, labels)), _LABEL_WIDTH)
    figure = new_figure(width, max(3.4, 1.2 + 0.19 * len(looks)), [panels[0].summary["benchmark"], *shared])
    for axes, head in zip(
        figure.subplots(1, len(heads), squeeze=False, sharey=True).flat, heads, strict=True
    ):
        lines = [
            (p, looks[label]) for p, label in zip(panels, labels, strict=True) if p.summary["head"] == head
        ]
        for panel, look in lines:
            _draw_line(axes, panel, look, offset=_offset(look, looks))
            _draw_paper(axes, panel, look, alone=len(looks) == 1)
        accuracy_axis(axes, label=head == heads[0])
        axes.set_title(f"{str(head).capitalize()} head", fontsize=PANEL_TITLE_SIZE, color=INK)
        axes.set_xlabel("tasks learned")
        axes.set_xticks(step_ticks(max(panel.n_tasks for panel, _ in lines)))
    _legend(figure, panels, labels, looks)
    return figure


def line_labels(panels: Sequence[Panel]) -> tuple[list[str], list[str]]:
    """Return what distinguishes the lines, one label per panel, and what they all share, for the title."""
    words = [panel.words for panel in panels]
    labels, shared = labels_and_title(words)
    if not any(labels):
        return ["mean of tasks seen"] * len(panels), shared
    if (
        not all(row["encoding"] for row in words) and words[0]["model"] in shared
    ):  # a line needs a name of its own
        shared.remove(words[0]["model"])
        labels = [", ".join(filter(None, (words[0]["model"], label))) for label in labels]
    return labels, shared


def _looks(labels: Sequence[str]) -> dict[str, _Look]:
    colours = (*OKABE_ITO, INK)
    looks = [
        _Look(colour, dash, marker)
        for dash, (colour, marker) in product(_DASHES, zip(colours, MARKERS, strict=True))
    ]
    return {label: looks[i % len(looks)] for i, label in enumerate(labels)}


def _offset(look: _Look, looks: dict[str, _Look]) -> float | None:
    """How far beyond the last step a line's interval stands, as a part of the axis; None where lines have bands."""
    if len(looks) <= _MOST_BANDS:
        return None
    return 0.02 + 0.06 * list(looks.values()).index(look) / len(looks)


def _draw_line(axes: Axes, panel: Panel, look: _Look, *, offset: float | None = None) -> None:
    mean, half = panel.by_step()
    steps = np.arange(1, panel.n_tasks + 1)
    if half is not None and offset is not None:
        low, high = np.clip([mean[-1] - half[-1], mean[-1] + half[-1]], 0, 100)
        axes.vlines(steps[-1] + offset * max(len(steps) - 1, 1), low, high, color=look.colour, linewidth=1.4)
    elif half is not None:
        low, high = (mean - half).clip(0, 100), (mean + half).clip(0, 100)
        axes.fill_between(steps, low, high, color=look.colour, alpha=0.15, linewidth=0)
    marker = look.marker if panel.n_tasks <= _MOST_MARKED_STEPS else ""
    axes.plot(
        steps, mean, color=look.colour, linestyle=look.dash, marker=marker, markersize=3.5, linewidth=1.6
    )


def _draw_paper(axes: Axes, panel: Panel, look: _Look, *, alone: bool) -> None:
    """The paper's final mean: a dashed line beside a single curve, else the curve's marker, hollow."""
    if panel.paper is None:
        return
    level, end = panel.paper["mean"], panel.n_tasks
    if alone:
        axes.plot([1, end], [level, level], color=INK, linewidth=1.1, linestyle=DASHED)
    else:
        beside = end + 0.04 * max(end - 1, 1)
        axes.plot(
            beside, level, color=look.colour, marker=look.marker, markersize=5.5, markerfacecolor="white"
        )


def _key(look: _Look, *, marked: bool) -> Line2D:
    marker = look.marker if marked else ""
    return Line2D([], [], color=look.colour, linestyle=look.dash, marker=marker, markersize=3.5)


def _legend(figure: Figure, panels: Sequence[Panel], labels: list[str], looks: dict[str, _Look]) -> None:
    """Outside on the right, best first, so that it reads like the right ends of the lines."""
    final: dict[str, list[float]] = {}
    for panel, label in zip(panels, labels, strict=True):
        final.setdefault(label, []).append(panel.summary["final_accuracy"]["mean"])
    best_first = sorted(final, key=lambda label: -float(np.mean(final[label])))
    marked = panels[0].n_tasks <= _MOST_MARKED_STEPS
    handles = [_key(looks[label], marked=marked) for label in best_first]
    names = [shorten(label, _LABEL_WIDTH) for label in best_first]
    if any(panel.paper for panel in panels):
        if len(looks) == 1:
            handles.append(Line2D([], [], color=INK, linestyle=DASHED, linewidth=1.1))
            names.append("paper, final mean")
        else:
            handles.append(Line2D([], [], color=INK, linestyle="", marker="o", mfc="white", markersize=5.5))
            names.append("hollow: paper, final mean")
    runs = {panel.summary["runs"] for panel in panels}
    shown = "band" if len(looks) <= _MOST_BANDS else "upright line"
    over = count(min(runs), "run") if len(runs) == 1 else "runs"
    band = f"{shown}: 95 % over {over}"
    figure.legend(
        handles,
        names,
        title="\n".join(["mean of tasks seen"] * (len(looks) > 1) + [band] * (max(runs) > 1)),
        loc="outside right center",
        handlelength=3.4,
        frameon=False,
        fontsize=SMALL_SIZE,
        title_fontsize=SMALL_SIZE,
        alignment="left",
    )
