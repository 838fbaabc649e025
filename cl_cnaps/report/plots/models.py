"""Models against the paper: one line for each, one panel for each benchmark, both heads on one axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cl_cnaps.errors import BadInputError
from cl_cnaps.names import PAPER_BENCHMARKS
from cl_cnaps.report.plots.style import (
    FORMATS,
    INK,
    OKABE_ITO,
    PANEL_TITLE_SIZE,
    SMALL_SIZE,
    chart_settings,
    new_figure,
    open_axes,
    save,
)
from cl_cnaps.report.standings import short_standings
from cl_cnaps.report.stream import StreamView

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
