"""Charts of ablations: the refinement grid, recall against shots, accuracy against queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.plots.few_shot import queries_by_method, recall_by_method
from cl_cnaps.report.plots.style import FORMATS, SMALL_SIZE, chart_settings, ink_on, new_figure, save


def draw_ablations(
    records: Sequence[AblationView], folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw a figure for each record into `folder`; of several records of one ablation, the id distinguishes them."""
    paths = []
    with chart_settings():
        for record in records:
            if record.which in _CHARTS:
                stem, draw = _CHARTS[record.which]
                alone = sum(other.which == record.which for other in records) == 1
                paths += save(draw(record), folder, stem if alone else f"{stem}-{record.record.id}", formats)
    return paths


def _recall_figure(record: AblationView) -> Figure:
    recalls = {row["title"]: record.recall(row["row"]) for row in record.rows}
    return recall_by_method(record.shared, recalls)


def _queries_figure(record: AblationView) -> Figure:
    methods = {row["title"]: row["results"] for row in record.rows}
    return queries_by_method(record.shared, methods)


_LEAST_SPAN = 1.0
"""Points that the colours of a grid span at least."""


def grid_figure(record: AblationView) -> Figure:
    """Mean accuracy over data sets for every least and most number of refinement steps (fig:max-and-min)."""
    least, most, values = record.refinement_grid()
    cells = np.array([[np.nan if value is None else 100 * value for value in row] for row in values])
    figure = new_figure(1.6 + 0.55 * len(most), 1.3 + 0.5 * len(least), record.shared)
    axes = figure.subplots()
    scale = matplotlib.colormaps["viridis"]
    # The differences are small: the colours span them, but never so little that rounding looks like a difference.
    spare = max(0.0, _LEAST_SPAN - float(np.nanmax(cells) - np.nanmin(cells))) / 2
    low, high = float(np.nanmin(cells)) - spare, float(np.nanmax(cells)) + spare
    image = axes.imshow(cells, cmap=scale, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    for place in np.argwhere(~np.isnan(cells)).tolist():
        value = float(cells[place[0], place[1]])
        ink = ink_on(scale((value - low) / (high - low)))
        axes.text(
            place[1], place[0], f"{value:.1f}", ha="center", va="center", fontsize=SMALL_SIZE, color=ink
        )
    axes.set_xticks(range(len(most)), [str(steps) for steps in most])
    axes.set_yticks(range(len(least)), [str(steps) for steps in least])
    axes.set_xlabel("most steps of refinement")
    axes.set_ylabel("least steps")
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label="mean accuracy, %", fraction=0.05, pad=0.02)
    return figure


_CHARTS: Mapping[str, tuple[str, Callable[[AblationView], Figure]]] = {
    "refinement": ("grid", grid_figure),
    "shots": ("recall", _recall_figure),
    "queries": ("queries", _queries_figure),
}
"""What the file is called and how it is drawn, of ablations that have a chart."""
