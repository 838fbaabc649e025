"""Which classes were given to which after the last task: the confusion matrix of a stream."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from cl_cnaps.report.labels import row_name, shorten
from cl_cnaps.report.plots.panel import Panel
from cl_cnaps.report.plots.style import INK, SMALL_SIZE, ink_on, new_figure

_MOST_NUMBERED = 12
_MOST_NAMED = 40
_NAME_WIDTH = 18


def confusion_figure(panels: Sequence[Panel]) -> Figure:
    """The panel of one record whose classes compete most: rows are right classes, columns what they were taken for."""
    panel = next((one for one in panels if one.summary["head"] == "single"), panels[0])
    assert panel.confusion is not None
    names, counts = panel.confusion
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = float(np.clip(0.3 * len(names), 2.8, 6.4))
    title = [panel.summary["benchmark"], row_name(panel.summary), f"{panel.summary['head']} head"]
    figure = new_figure(side + 2.2, side + 1.1, [*title, *panel.circumstances])
    axes = figure.subplots()
    scale = matplotlib.colormaps["viridis"]
    image = axes.imshow(shares, cmap=scale, vmin=0, vmax=100, interpolation="nearest")
    if len(names) <= _MOST_NUMBERED:
        for row, column in np.ndindex(*shares.shape):
            if counts[row, column]:
                ink = ink_on(scale(shares[row, column] / 100))
                text = f"{shares[row, column]:.0f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=SMALL_SIZE, color=ink)
    # Lines between tasks: what crosses them are classes taken for those of another task.
    for end in np.cumsum(panel.classes_per_task)[:-1] if sum(panel.classes_per_task) == len(names) else ():
        axes.axhline(end - 0.5, color="white", linewidth=0.7)
        axes.axvline(end - 0.5, color="white", linewidth=0.7)
    few = len(names) <= _MOST_NAMED
    ticks = range(len(names)) if few else range(0, len(names), max(1, len(names) // 10))
    labels = [shorten(names[i], _NAME_WIDTH) if few else str(i + 1) for i in ticks]
    axes.set_xticks(list(ticks), labels, rotation=90 if few else 0)
    axes.set_yticks(list(ticks), labels)
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    unit = "" if few else ", by order of learning"
    axes.set_xlabel(f"predicted class{unit}", color=INK)
    axes.set_ylabel(f"right class{unit}", color=INK)
    figure.colorbar(image, ax=axes, label="queries of the class, %", fraction=0.05, pad=0.02)
    return figure
