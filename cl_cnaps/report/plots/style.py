"""Colours, fonts and files: what every chart has in common.

Figures are made with matplotlib's object interface, so nothing here needs a display or touches the figures
of a program that draws with pyplot.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke

from cl_cnaps.data.atomic import write_bytes
from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.intervals import Array
from cl_cnaps.names import STRATEGIES

INK = "#222222"
GRID = "#d9d9d9"
DASHED = (0, (5, 3))
FORMATS = ("png", "svg")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ((0, ()), (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))

# The colours of Okabe and Ito in an order that alternates light and dark, so that neighbours differ in
# grey print as well. Their yellow is left out, which white paper swallows.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7")

TITLE_SIZE = 10.5
PANEL_TITLE_SIZE = 9.5
SMALL_SIZE = 8.0
DPI = 150

_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib: the same picture on every machine
    "font.size": 9.0,
    "svg.fonttype": "none",  # text stays text: searchable, and small files
    "svg.hashsalt": "cl-cnaps",  # the same ids in every run
}
_METADATA: dict[str, dict[str, None]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}


@contextmanager
def chart_settings() -> Iterator[None]:
    """Draw and save within this: matplotlib's defaults and ours, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def task_colours(n_tasks: int) -> list[str]:
    """One colour per task: named ones for a few, else steps of a scale that lightens evenly."""
    if n_tasks <= len(OKABE_ITO):
        return list(OKABE_ITO[:n_tasks])
    scale = task_scale()
    return [to_hex(scale(i / (n_tasks - 1))) for i in range(n_tasks)]


def strategy_colours(strategies: Iterable[str]) -> dict[str, str]:
    """A colour for each acquisition strategy: the paper's keep theirs in every chart, others have the next free ones.

    Others are taken by name, so that the order in which they were measured does not matter.
    """
    given = dict.fromkeys(strategies)
    others = sorted(set(given).difference(STRATEGIES))
    colours = dict(zip(STRATEGIES, OKABE_ITO, strict=False))
    free = OKABE_ITO[len(colours) :]
    colours |= {name: free[i % len(free)] for i, name in enumerate(others)}
    return {name: colours[name] for name in given}


def task_scale() -> Colormap:
    """Viridis without its palest end."""
    viridis = matplotlib.colormaps["viridis"]
    return ListedColormap(viridis([0.92 * i / 255 for i in range(256)]), name="tasks")


def halo(width: float) -> list[withStroke]:
    """A white edge, so that a line shows on dark bars too."""
    return [withStroke(linewidth=width, foreground="white")]


def ink_on(colour: tuple[float, float, float, float]) -> str:
    """Black or white, whichever can be read on the colour."""
    red, green, blue = (math.pow(channel, 2.2) for channel in colour[:3])
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 else "white"


def new_figure(width: float, height: float, title: Sequence[str]) -> Figure:
    """An empty figure, in inches, with the parts of its title broken to the width."""
    lines = _lines(title, characters=max(20, int(width * 72 / (0.58 * TITLE_SIZE))))
    figure = Figure(figsize=(width, height + 0.17 * (len(lines) - 1)), layout="constrained")
    figure.suptitle("\n".join(lines), fontsize=TITLE_SIZE, color=INK)
    return figure


def accuracy_axis(axes: Axes, *, label: bool) -> None:
    """y from 0 to 100 % with faint lines behind the data."""
    axes.set_ylim(0, 100)
    axes.set_yticks(range(0, 101, 20))
    axes.set_ylabel("accuracy, %" if label else "")
    open_axes(axes)


def open_axes(axes: Axes, grid: Literal["x", "y", "both"] = "y") -> None:
    """No box around the data, and faint lines behind it."""
    axes.grid(axis=grid, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def band_line(
    axes: Axes,
    x: Sequence[float] | Array,
    mean: Array,
    half: Array | None,
    *,
    band: float = 0.13,
    **look: Any,
) -> None:
    """A line of accuracies in per cent with the band of their intervals."""
    if half is not None:
        low, high = (mean - half).clip(0, 100), (mean + half).clip(0, 100)
        axes.fill_between(x, low, high, color=look["color"], alpha=band, linewidth=0)
    axes.plot(x, mean, **({"linewidth": 1.6} | look))


def line_look(number: int, colours: Sequence[str] = OKABE_ITO) -> dict[str, Any]:
    """Colour, dash and marker of line `number`: colours repeat with another dash."""
    return {
        "color": colours[number % len(colours)],
        "linestyle": DASHES[number // len(colours) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def add_legend(
    figure: Figure, side: Literal["right center", "lower center"] = "right center", **more: Any
) -> None:
    """Add a legend outside of the axes; without `handles` and `labels`, of all that has a label."""
    where: Any = f"outside {side}"
    shared: dict[str, Any] = {"frameon": False, "fontsize": SMALL_SIZE, "title_fontsize": SMALL_SIZE}
    figure.legend(loc=where, **({"alignment": "left", "handlelength": 3.0} | shared | more))


def heat_map(
    axes: Axes,
    values: Array,
    limits: tuple[float, float],
    form: str,
    *,
    written: Any = True,
    size: float = SMALL_SIZE,
) -> AxesImage:
    """Draw a matrix in colours between two limits; cells that are `written` have their number, if it has a format."""
    scale, (low, high) = matplotlib.colormaps["viridis"], limits
    image = axes.imshow(values, cmap=scale, vmin=low, vmax=high, interpolation="nearest")
    for row, column in np.argwhere(~np.isnan(values) & written).tolist() if form else ():
        value = float(values[row, column])
        look: dict[str, Any] = {"fontsize": size, "color": ink_on(scale((value - low) / (high - low)))}
        axes.text(column, row, format(value, form), ha="center", va="center", **look)
    axes.tick_params(length=0, labelsize=SMALL_SIZE)
    axes.spines[:].set_visible(False)
    return image


def step_ticks(n_tasks: int) -> list[int]:
    """Steps to label, counted from 1: all of a short stream, else the first and five evenly spaced."""
    every = range(1, n_tasks + 1)
    return list(every) if n_tasks <= 12 else [1, *(round(n_tasks * i / 5) for i in every[:5])]


def draw(figures: Iterable[tuple[str, Figure]], folder: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `<folder>/<name>.<format>` for every figure and format, each in one step; equal figures give equal bytes.

    An iterator makes its figures here, with the settings of charts.
    """
    for extension in formats:
        if extension not in FORMATS:
            raise BadInputError(f"unknown format {extension!r}; known: {', '.join(FORMATS)}")
    paths = []
    with chart_settings():
        for name, figure in figures:
            for extension in formats:
                content = io.BytesIO()
                figure.savefig(content, format=extension, dpi=DPI, metadata=_METADATA[extension])
                paths.append(folder / f"{name}.{extension}")
                write_bytes(paths[-1], content.getvalue())
    return paths


def _lines(parts: Sequence[str], characters: int) -> list[str]:
    """Parts joined by dots; a line ends between parts, and within one only if it is longer than a line."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= characters:
            lines[-1] += f" · {part}"
        else:
            lines += textwrap.wrap(part, characters, break_on_hyphens=False)
    return lines
