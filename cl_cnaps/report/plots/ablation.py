"""Charts of ablations: task encodings, FiLM distances, the refinement grid, recall against shots, and queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cl_cnaps.metrics.intervals import Array
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.adaptation import film_distances, film_ratio, has_encodings, task_encodings
from cl_cnaps.report.plots.few_shot import queries_by_method, recall_by_method
from cl_cnaps.report.plots.style import (
    FORMATS,
    INK,
    MARKERS,
    OKABE_ITO,
    SMALL_SIZE,
    chart_settings,
    ink_on,
    line_legend,
    new_figure,
    open_axes,
    save,
)


def draw_ablations(
    records: Sequence[AblationView], folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw a figure for each record into `folder`; of several records of one ablation, the id distinguishes them."""
    paths = []
    with chart_settings():
        for record in records:
            alone = sum(other.which == record.which for other in records) == 1
            for stem, draw in figures_of(record).items():
                paths += save(draw(record), folder, stem if alone else f"{stem}-{record.record.id}", formats)
    return paths


def figures_of(record: AblationView) -> Mapping[str, Callable[[AblationView], Figure]]:
    """Return what an ablation's figures are called and how they are drawn; none where a table shows it better."""
    if record.which == "adaptation" and not has_encodings(record):
        return {}
    return _CHARTS.get(record.which, {})


def encodings_figure(record: AblationView) -> Figure:
    """Task encodings in two dimensions (PCA), coloured by data set: tasks of one kind lie together if it is encoded."""
    titles, encodings = task_encodings(record)
    centred = encodings - encodings.mean(axis=0)
    left, spread, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * spread)[:, :2]
    share = spread**2 / max(float((spread**2).sum()), 1e-12)
    names = list(dict.fromkeys(titles))
    figure = new_figure(7.6, 4.4, ["Task encodings", record.shared[1]])
    axes = figure.subplots()
    for number, name in enumerate(names):
        mine = points[[title == name for title in titles]]
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        hollow = number >= len(OKABE_ITO)
        axes.scatter(
            mine[:, 0],
            mine[:, 1] if points.shape[1] > 1 else np.zeros(len(mine)),
            s=26,
            marker=MARKERS[number % len(MARKERS)],
            facecolors="none" if hollow else colour,
            edgecolors=colour if hollow else "white",
            linewidths=1.3 if hollow else 0.5,
            label=name,
        )
    for axis, part, set_label in ((0, share[:1], axes.set_xlabel), (1, share[1:2], axes.set_ylabel)):
        set_label(f"component {axis + 1} ({100 * float(part.sum()):.0f} % of the variance)")
    open_axes(axes, "both")
    line_legend(figure, f"{len(titles) // len(names)} tasks of each data set")
    return figure


def distances_figure(record: AblationView) -> Figure:
    """How far the FiLM of data sets are apart, and from no FiLM: the mean encoding of each gives its FiLM."""
    names, apart = film_distances(record)
    side = 0.52 * len(names)
    figure = new_figure(side + 2.9, side + 1.5, ["Distance of FiLM between data sets", record.shared[1]])
    axes = figure.subplots()
    largest = float(apart.max()) or 1.0
    axes.imshow(apart, cmap=matplotlib.colormaps["viridis"], vmin=0, vmax=largest, aspect="equal")
    _write_cells(axes, apart, 0.0, largest, ".3f")
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    for edge in (axes.axhline, axes.axvline):
        edge(len(names) - 1.5, color="white", linewidth=2.5)
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    between, moved = film_ratio(record)
    means = f"between data sets {between:.3f}, from no FiLM {moved:.3f} on average"
    figure.supxlabel(f"root mean square over gammas and betas; {means}", fontsize=SMALL_SIZE, color=INK)
    return figure


def _write_cells(axes: Axes, cells: Array, low: float, high: float, form: str) -> None:
    """Write every finite number in its cell, in an ink that can be read there."""
    scale = matplotlib.colormaps["viridis"]
    for row, column in np.argwhere(~np.isnan(cells)).tolist():
        value = float(cells[row, column])
        ink = ink_on(scale((value - low) / (high - low)))
        axes.text(
            column, row, format(value, form), ha="center", va="center", fontsize=SMALL_SIZE - 1, color=ink
        )


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
    _write_cells(axes, cells, low, high, ".1f")
    axes.set_xticks(range(len(most)), [str(steps) for steps in most])
    axes.set_yticks(range(len(least)), [str(steps) for steps in least])
    axes.set_xlabel("most steps of refinement")
    axes.set_ylabel("least steps")
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label="mean accuracy, %", fraction=0.05, pad=0.02)
    return figure


_CHARTS: Mapping[str, Mapping[str, Callable[[AblationView], Figure]]] = {
    "adaptation": {"encodings": encodings_figure, "film-distances": distances_figure},
    "refinement": {"grid": grid_figure},
    "shots": {"recall": _recall_figure},
    "queries": {"queries": _queries_figure},
}
"""What the files are called and how they are drawn, of ablations that have charts."""
