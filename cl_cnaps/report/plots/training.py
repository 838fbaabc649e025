"""Curves of a meta-training: validation accuracy against tasks, adapted and frozen; and the test at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_cnaps.report.plots.style import (
    FORMATS,
    GRID,
    OKABE_ITO,
    PANEL_TITLE_SIZE,
    SMALL_SIZE,
    chart_settings,
    line_legend,
    new_figure,
    save,
)
from cl_cnaps.report.training import MEANING, Scores, read_curves

_COLOURS = dict(zip(MEANING, OKABE_ITO, strict=False))
_DASHES: Mapping[str, object] = {
    "own": "-",
    "static": (0, (4, 1.5)),
    "swapped": (0, (1.2, 1.2)),
    "frozen": "-.",
}
_MOST_PANELS = 4


def draw_training(folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw the log of a run into its folder: `curves`, with a panel a source, and bars of the test."""
    validations, tested = read_curves(folder)
    if not validations:
        return []
    with chart_settings():
        return save(training_figure(validations, tested, folder.name), folder, "curves", formats)


def training_figure(validations: Mapping[int, Scores], tested: Scores, name: str) -> Figure:
    """Return the figure: validation curves by source, then accuracy on test tasks."""
    sources = list(next(iter(validations.values()))["own"])
    panels = len(sources) + bool(tested)
    across = min(panels, _MOST_PANELS)
    down = -(-panels // across)
    figure = new_figure(
        max(5.6, 2.8 * across + 1.8), 2.5 * down + 0.8, [f"meta-training {name}", "accuracy, %"]
    )
    grid = figure.subplots(down, across, squeeze=False)
    for number in range(down * across):
        axes = grid[number // across, number % across]
        if number < len(sources):
            _curves(axes, validations, sources[number])
        elif number == len(sources) and tested:
            _bars(axes, tested)
        else:
            axes.set_axis_off()
    line_legend(figure, "")
    return figure


def _curves(axes: Axes, validations: Mapping[int, Scores], source: str) -> None:
    for kind, meaning in MEANING.items():
        points = {tasks: 100 * scores[kind][source] for tasks, scores in validations.items()}
        axes.plot(
            list(points),
            list(points.values()),
            color=_COLOURS[kind],
            linestyle=_DASHES[kind],
            marker="o",
            markersize=3,
            label=f"{kind}: {meaning}",
        )
    axes.set_title(f"{source}, validation", fontsize=PANEL_TITLE_SIZE)
    axes.set_xlabel("tasks trained on", fontsize=SMALL_SIZE)
    _frame(axes)


def _bars(axes: Axes, tested: Scores) -> None:
    sources = list(tested["own"])
    width = 0.8 / len(MEANING)
    for position, kind in enumerate(MEANING):
        heights = [100 * tested[kind][source] for source in sources]
        places = [index + (position - (len(MEANING) - 1) / 2) * width for index in range(len(sources))]
        bars = axes.bar(places, heights, width, color=_COLOURS[kind])
        axes.bar_label(bars, fmt="%.0f", fontsize=SMALL_SIZE - 1.5)
    axes.set_xticks(range(len(sources)), sources)
    axes.set_ylim(0, 108)
    axes.set_title("test, at the end", fontsize=PANEL_TITLE_SIZE)
    _frame(axes)


def _frame(axes: Axes) -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL_SIZE)
    axes.spines[["top", "right"]].set_visible(False)
