"""Learning curves as in fig:active-learning-figure: accuracy against labels, adapted and frozen side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from cl_cnaps.errors import BadInputError
from cl_cnaps.report.active import FEATURES, ActiveView
from cl_cnaps.report.labels import count, labels_and_title, method_name, shorten
from cl_cnaps.report.plots.style import (
    FORMATS,
    INK,
    PANEL_TITLE_SIZE,
    SMALL_SIZE,
    band_line,
    chart_settings,
    new_figure,
    open_axes,
    save,
    strategy_colours,
)
from cl_cnaps.report.view import Row

_DASHES = ((0, ()), (0, (5, 1.5)), (0, (1.2, 1.2)))
"""One for each model, where a figure has several."""
_MOST_COLUMNS = 4
_TITLE_WIDTH = 34


def draw_active(
    records: Sequence[ActiveView], folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw records together into `folder`: a figure `curves` for each source."""
    sources: dict[str, list[Row]] = {}
    for record in records:
        for entry in record.rows:
            sources.setdefault(entry["source"], []).append(entry)
    if not sources:
        raise BadInputError("there is no record to draw")
    paths = []
    with chart_settings():
        for source, entries in sources.items():
            stem = "curves" if len(sources) == 1 else f"curves-{source}"
            paths += save(curve_figure(entries), folder, stem, formats)
    return paths


def curve_figure(entries: Sequence[Row]) -> Figure:
    """The entries of one source: for each task a panel for adapted and one for frozen features, side by side."""
    tasks = list(dict.fromkeys(entry["alphabet"] for entry in entries))
    kinds = [kind for kind in FEATURES if any(entry["adaptation"] == kind for entry in entries)]
    across = max(1, min(len(tasks), _MOST_COLUMNS // len(kinds)))
    down = -(-len(tasks) // across)
    columns = across * len(kinds)
    figure = new_figure(max(4.6, 2.6 * columns + 0.6), 2.4 * down + 1.1, _title(entries))
    grid = figure.subplots(down, columns, squeeze=False)
    colours = strategy_colours(entry["strategy"] for entry in entries)
    models = list(dict.fromkeys(method_name(entry) for entry in entries))
    for number, task in enumerate(tasks):
        mine = [entry for entry in entries if entry["alphabet"] == task]
        low, high = _range(mine)
        for k, kind in enumerate(kinds):
            axes = grid[number // across, (number % across) * len(kinds) + k]
            for entry in (entry for entry in mine if entry["adaptation"] == kind):
                _draw_curve(
                    axes, entry, colours[entry["strategy"]], _DASHES[models.index(method_name(entry)) % 3]
                )
            _dress(axes, _panel_title(task, kind, entries), low, high, labelled=k == 0)
    for empty in range(len(tasks) * len(kinds), down * columns):
        grid.flat[empty].set_visible(False)
    _legend(figure, entries, colours, models)
    return figure


def _draw_curve(axes: Axes, entry: Row, colour: str, dash: tuple[float, tuple[float, ...]]) -> None:
    labels, mean = entry["labels"], 100 * np.array(entry["accuracy"]["mean"])
    half = 100 * np.array(entry["accuracy"]["ci95"]) if entry["runs"] > 1 else None
    band_line(axes, labels, mean, half, color=colour, linestyle=dash)


def _dress(axes: Axes, title: str, low: float, high: float, *, labelled: bool) -> None:
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    axes.set_ylabel("accuracy, %" if labelled else "")
    axes.set_xlabel("labels")
    axes.set_title(title, fontsize=PANEL_TITLE_SIZE, color=INK)
    open_axes(axes)


def _range(entries: Sequence[Row]) -> tuple[float, float]:
    """What the y axes of a task's panels show: all means, and intervals up to twice their range.

    Two or three runs have intervals so wide that the curves would be flat lines among them.
    """
    means = 100 * np.concatenate([entry["accuracy"]["mean"] for entry in entries])
    halves = [100 * (half or 0.0) for entry in entries for half in entry["accuracy"]["ci95"]]
    low, high = float(means.min()), float(means.max())
    room = max(1.0, min(max(halves), high - low))
    return max(0.0, low - room), min(100.0, high + room)


def _title(entries: Sequence[Row]) -> list[str]:
    """What all curves share."""
    words_of_curves = [
        {
            "source": entry["source"],
            "model": method_name(entry),
            "backbone": entry["backbone"],
            "labels": f"{count(entry['per_round'], 'label')} a round",
            "runs": count(entry["runs"], "run"),
        }
        for entry in entries
    ]
    return labels_and_title(words_of_curves)[1]


def _panel_title(task: str | None, kind: str, entries: Sequence[Row]) -> str:
    name = shorten((task or entries[0]["source"]).replace("_", " "), _TITLE_WIDTH)
    return f"{name} (FFE)" if kind == "none" else name


_LEGEND_ENTRY = 1.7
"""Inches of the widest entry of a legend."""


def _legend(figure: Figure, entries: Sequence[Row], colours: dict[str, str], models: list[str]) -> None:
    handles = [Line2D([], [], color=colour, linewidth=1.6) for colour in colours.values()]
    names = list(colours)
    if len(models) > 1:
        for model, dash in zip(models, _DASHES, strict=False):
            handles.append(Line2D([], [], color=INK, linestyle=dash, linewidth=1.6))
            names.append(model)
    runs = {entry["runs"] for entry in entries}
    notes = ["band: 95 % over runs"] if max(runs) > 1 else []
    if any(entry["adaptation"] == "none" for entry in entries):
        notes.append("FFE: frozen features")
    figure.legend(
        handles,
        names,
        title="; ".join(notes) or None,
        loc="outside lower center",
        ncols=min(len(names), max(2, int(figure.get_figwidth() / _LEGEND_ENTRY))),
        handlelength=3.0,
        frameon=False,
        fontsize=SMALL_SIZE,
        title_fontsize=SMALL_SIZE,
    )
