"""Task against step: every accuracy of a stream in one picture."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from cl_cnaps.names import HEADS
from cl_cnaps.report.labels import in_order, shorten
from cl_cnaps.report.plots.panel import Panel
from cl_cnaps.report.plots.style import INK, PANEL_TITLE_SIZE, SMALL_SIZE, ink_on, new_figure, step_ticks

_MOST_NUMBERED_TASKS = 12
_MOST_NAMED_TASKS = 20
_NAME_WIDTH = 30


def heatmap_figure(panels: Sequence[Panel]) -> Figure:
    """Panels of one record, heads side by side."""
    n_tasks = panels[0].n_tasks
    side = float(np.clip(0.4 * n_tasks, 2.4, 4.8))
    longest = max(map(len, _task_labels(panels[0])))
    width = len(panels) * (side + 0.15) + 1.3 + 0.075 * longest
    figure = new_figure(max(width, 5.0), side + 1.1, panels[0].setting_title)
    figure.set_layout_engine("compressed")  # square cells: keep the panels together
    heads = in_order({panel.summary["head"] for panel in panels}, HEADS)
    ordered = sorted(panels, key=lambda panel: heads.index(panel.summary["head"]))
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    for axes, panel in zip(grid.flat, ordered, strict=True):
        image = draw_heatmap(axes, panel)
        axes.set_title(panel.title, fontsize=PANEL_TITLE_SIZE, color=INK)
        axes.set_xlabel("tasks learned")
    grid[0, 0].set_ylabel("task")
    figure.colorbar(image, ax=grid, label="accuracy, %", fraction=0.05, pad=0.02)
    return figure


def draw_heatmap(axes: Axes, panel: Panel) -> AxesImage:
    """Rows are tasks, columns steps; the empty triangle is what had not been seen."""
    n_tasks, values = panel.n_tasks, panel.mean().T
    scale = matplotlib.colormaps["viridis"]
    image = axes.imshow(values, cmap=scale, vmin=0, vmax=100, aspect="equal", interpolation="nearest")
    if n_tasks <= _MOST_NUMBERED_TASKS:
        for task, step in ((i, t) for i in range(n_tasks) for t in range(i, n_tasks)):
            value = values[task, step]
            ink = ink_on(scale(value / 100))
            axes.text(step, task, f"{value:.0f}", ha="center", va="center", fontsize=SMALL_SIZE, color=ink)
    steps = step_ticks(n_tasks)
    axes.set_xticks([step - 1 for step in steps], [str(step) for step in steps])
    labels = _task_labels(panel)
    rows = steps if n_tasks > _MOST_NAMED_TASKS else range(1, n_tasks + 1)
    axes.set_yticks([row - 1 for row in rows], [labels[row - 1] for row in rows])
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    return image


def _task_labels(panel: Panel) -> list[str]:
    """Number and name; the number alone where there is no room for all names."""
    if panel.n_tasks > _MOST_NAMED_TASKS:
        return [str(i + 1) for i in range(panel.n_tasks)]
    return [shorten(f"{i}: {name}", _NAME_WIDTH) for i, name in enumerate(panel.task_names, start=1)]
