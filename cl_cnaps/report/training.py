"""A meta-training in tables and curves: the columns of every validation and of the test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_cnaps.models.adaptation import COLUMNS
from cl_cnaps.models.weights import describe, shipped_root
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.style import PANEL_TITLE_SIZE, SMALL_SIZE
from cl_cnaps.report.table import Cell, Column, Table, TableRow, markdown_table, words

Scores = Mapping[str, Mapping[str, float]]
"""Accuracy by column (own, static, swapped, frozen) and source."""

MEANING: Mapping[str, str] = {
    "own": "adapted to each task",
    "static": "one modulation for all tasks",
    "swapped": "adapted to a foreign source",
    "frozen": "not adapted",
}
_MOST_PANELS = 4


def accuracy_table(
    best: Mapping[str, Any], tested: Scores, sources: Mapping[str, Mapping[str, Any]]
) -> Table:
    """Return the accuracy of the weights that are kept, by source: on validation tasks, then on test tasks."""
    rows = []
    for title, role, scores in (("validation", "validate", best["scores"]), ("test", "test", tested)):
        for name in scores.get("own", {}):
            of = sources[name][role]
            accuracies = [100 * scores[kind][name] for kind in COLUMNS]
            label = words(f"{title}: {name}, {of['classes']:,} classes of {of['split']}")
            rows.append(TableRow([label, *(Cell(f"{value:.1f}", value) for value in accuracies)]))
    return Table(
        "training",
        f"accuracy, %, of the best weights (after {best['tasks']:,} tasks)",
        [Column("", numeric=False), *(Column(kind) for kind in COLUMNS)],
        rows,
        notes=["; ".join(f"{kind}: {meaning}" for kind, meaning in MEANING.items()) + "."],
    )


def shipped_weights_table(_results: Path) -> str:
    """Markdown: the weights in the package, how far each was trained, and the four columns of its validation."""
    rows = []
    for path in sorted(shipped_root().glob("*.safetensors")):
        training = describe(path).training
        means = [100 * fmean(training["validation"][kind].values()) for kind in COLUMNS]
        start = training["recipe"].get("start")
        counts = [training["tasks"], training["tasks_in_all"]]
        rows.append(
            TableRow(
                [
                    words(path.stem),
                    words("" if start is None else "itself, earlier" if start == path.stem else start),
                    *(Cell(f"{tasks:,}", tasks) for tasks in counts),
                    *(Cell(f"{value:.1f}", value) for value in means),
                    Cell(f"{path.stat().st_size / 1e6:.1f}", path.stat().st_size),
                ]
            )
        )
    text = [Column(title, numeric=False) for title in ("weights", "start")]
    numbers = [Column(title) for title in ("tasks", "of", *COLUMNS, "MB")]
    return markdown_table(Table("weights", "", [*text, *numbers], rows))


def draw_training(folder: Path) -> list[Path]:
    """Draw the log of a run into its folder: `curves`, with a panel a source, and bars of the test."""
    validations: dict[int, Scores] = {}
    tested: Scores = {}
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        scores: dict[str, Any] = {kind: entry[kind] for kind in COLUMNS if kind in entry}
        if entry["kind"] == "validation" and scores:
            validations[entry["tasks"]] = scores
        elif entry["kind"] == "test":
            tested = scores
    if not validations:
        return []
    figures = (("curves", training_figure(*found)) for found in [(validations, tested, folder.name)])
    return style.draw(figures, folder)


def training_figure(validations: Mapping[int, Scores], tested: Scores, name: str) -> Figure:
    """Return the figure: validation curves by source, then accuracy on test tasks."""
    sources = list(next(iter(validations.values()))["own"])
    panels = len(sources) + bool(tested)
    across = min(panels, _MOST_PANELS)
    down = -(-panels // across)
    title = [f"meta-training {name}", "accuracy, %"]
    figure = style.new_figure(max(5.6, 2.8 * across + 1.8), 2.5 * down + 0.8, title)
    grid = figure.subplots(down, across, squeeze=False)
    for axes, source in zip(grid.flat, sources, strict=False):
        _curves(axes, validations, source)
    if tested:
        _bars(grid.flat[len(sources)], tested)
    for axes in grid.flat[panels:]:
        axes.set_axis_off()
    for axes in grid.flat[:panels]:
        style.open_axes(axes)
        axes.tick_params(labelsize=SMALL_SIZE)
    style.add_legend(figure)
    return figure


def _curves(axes: Axes, validations: Mapping[int, Scores], source: str) -> None:
    for number, (kind, meaning) in enumerate(MEANING.items()):
        accuracies = [100 * scores[kind][source] for scores in validations.values()]
        look: Any = {"color": style.OKABE_ITO[number], "linestyle": style.DASHES[number]}
        axes.plot(list(validations), accuracies, marker="o", markersize=3, label=f"{kind}: {meaning}", **look)
    axes.set_title(f"{source}, validation", fontsize=PANEL_TITLE_SIZE)
    axes.set_xlabel("tasks trained on", fontsize=SMALL_SIZE)


def _bars(axes: Axes, tested: Scores) -> None:
    sources = list(tested["own"])
    width = 0.8 / len(MEANING)
    for number, kind in enumerate(MEANING):
        heights = [100 * tested[kind][source] for source in sources]
        centres = [index + (number - (len(MEANING) - 1) / 2) * width for index in range(len(sources))]
        bars = axes.bar(centres, heights, width, color=style.OKABE_ITO[number])
        axes.bar_label(bars, fmt="%.0f", fontsize=SMALL_SIZE - 1.5)
    axes.set_xticks(range(len(sources)), sources)
    axes.set_ylim(0, 108)
    axes.set_title("test, at the end", fontsize=PANEL_TITLE_SIZE)
