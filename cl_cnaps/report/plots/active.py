"""Learning curves as in fig:active-learning-figure: accuracy against labels, adapted and frozen side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cl_cnaps.report.active import FEATURES, ActiveView
from cl_cnaps.report.labels import count, labels_and_title, method_name, shorten
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.style import DASHES, INK, PANEL_TITLE_SIZE
from cl_cnaps.report.view import Row

_MOST_COLUMNS = 4
_TITLE_WIDTH = 34
_LEGEND_ENTRY = 1.7
"""Inches of the widest entry of a legend."""


def active_figures(views: Sequence[ActiveView]) -> Iterator[tuple[str, Figure]]:
    """Yield a figure `curves` for each source."""
    sources: dict[str, list[Row]] = {}
    for row in (row for view in views for row in view.rows):
        sources.setdefault(row["source"], []).append(row)
    for source, rows in sources.items():
        yield "curves" if len(sources) == 1 else f"curves-{source}", curve_figure(rows)


def curve_figure(rows: Sequence[Row]) -> Figure:
    """The rows of one source: for each task a panel for adapted and one for frozen features, side by side."""
    tasks = list(dict.fromkeys(row["alphabet"] for row in rows))
    kinds = [kind for kind in FEATURES if any(row["adaptation"] == kind for row in rows)]
    across = max(1, min(len(tasks), _MOST_COLUMNS // len(kinds)))
    down = -(-len(tasks) // across)
    columns = across * len(kinds)
    figure = style.new_figure(max(4.6, 2.6 * columns + 0.6), 2.4 * down + 1.1, _title(rows))
    grid = figure.subplots(down, columns, squeeze=False)
    colours = style.strategy_colours(row["strategy"] for row in rows)
    models = list(dict.fromkeys(map(method_name, rows)))
    panels = [(task, kind) for task in tasks for kind in kinds]
    for axes, (task, kind) in zip(grid.flat, panels, strict=False):
        mine = [row for row in rows if row["alphabet"] == task]
        for row in (row for row in mine if row["adaptation"] == kind):
            mean = 100 * np.array(row["accuracy"]["mean"])
            half = 100 * np.array(row["accuracy"]["ci95"]) if row["runs"] > 1 else None
            dash: Any = DASHES[models.index(method_name(row)) % len(DASHES)]
            style.band_line(axes, row["labels"], mean, half, color=colours[row["strategy"]], linestyle=dash)
        axes.set_ylim(*_range(mine))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
        axes.set_ylabel("accuracy, %" if kind == kinds[0] else "")
        axes.set_xlabel("labels")
        name = shorten((task or rows[0]["source"]).replace("_", " "), _TITLE_WIDTH)
        title = f"{name} (FFE)" if kind == "none" else name
        axes.set_title(title, fontsize=PANEL_TITLE_SIZE, color=INK)
        style.open_axes(axes)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    _legend(figure, rows, colours, models)
    return figure


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the limits of the y axes of a task's panels: all means, and intervals up to twice their range.

    Two or three runs have intervals so wide that the curves would be flat lines among them.
    """
    means = 100 * np.concatenate([row["accuracy"]["mean"] for row in rows])
    halves = [100 * (half or 0.0) for row in rows for half in row["accuracy"]["ci95"]]
    low, high = float(means.min()), float(means.max())
    room = max(1.0, min(max(halves), high - low))
    return max(0.0, low - room), min(100.0, high + room)


def _title(rows: Sequence[Row]) -> list[str]:
    """Return the parts of the title: what all curves share."""
    words = [
        {
            "source": row["source"],
            "model": method_name(row),
            "backbone": row["backbone"],
            "labels": f"{count(row['per_round'], 'label')} a round",
            "runs": count(row["runs"], "run"),
        }
        for row in rows
    ]
    return labels_and_title(words)[1]


def _legend(figure: Figure, rows: Sequence[Row], colours: dict[str, str], models: list[str]) -> None:
    handles = [Line2D([], [], color=colour, linewidth=1.6, label=name) for name, colour in colours.items()]
    if len(models) > 1:
        looks = zip(models, DASHES, strict=False)
        handles += [
            Line2D([], [], color=INK, linestyle=dash, linewidth=1.6, label=name) for name, dash in looks
        ]
    notes = ["band: 95 % over runs"] * any(row["runs"] > 1 for row in rows)
    notes += ["FFE: frozen features"] * any(row["adaptation"] == "none" for row in rows)
    columns = min(len(handles), max(2, int(figure.get_figwidth() / _LEGEND_ENTRY)))
    look: dict[str, Any] = {"ncols": columns, "alignment": "center", "title": "; ".join(notes) or None}
    style.add_legend(figure, "lower center", handles=handles, **look)
