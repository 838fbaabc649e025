"""Accuracy against speed over image sizes: validation tasks (`benchmarks/validation.py`), images a second (`bench`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from cl_cnaps.models.networks import DEFAULT_BACKBONE, PACKAGED_IMAGE_SIZE
from cl_cnaps.records.record import Record
from cl_cnaps.report.plots import style

_WHAT = re.compile(rf"{DEFAULT_BACKBONE}: folded, images of (\d+) pixels")
_FEATURES = {"adapted": "adapted features", "frozen": "frozen features"}


def sizes_figure(records: Sequence[Record], validation: Path) -> Figure:
    """Draw accuracy on validation tasks against the images that the newest record embeds a second, a point a size."""
    newest = max(records, key=lambda record: str(record.environment["finished"]))
    rates = _images_a_second(newest.summary["figures"])
    rows = pd.read_csv(validation)
    rows = rows[rows["choice"] == "image size"]
    rows[["size", "features"]] = rows["setting"].str.split(" ", expand=True)
    rows["size"] = rows["size"].astype(int)
    n_sources = rows["source"].nunique()
    title = [
        "Image size, on validation tasks",
        newest.environment["cpu"]["model"],
        f"{newest.config['threads']} threads",
    ]
    figure = style.new_figure(7.2, 3.9, title)
    axes = figure.subplots()
    for number, (features, label) in enumerate(_FEATURES.items()):
        mine = rows[rows["features"] == features]
        by_size = {size: mine[mine["size"] == size] for size in sorted(rates)}
        points = [
            (
                rates[size],
                100 * one["accuracy"].mean(),
                100 * np.sqrt((one["ci95"] ** 2).sum()) / len(one),
                size,
            )
            for size, one in by_size.items()
            if len(one)
        ]
        x, mean, half = (np.array([point[i] for point in points]) for i in range(3))
        look: dict[str, Any] = {"label": label, **style.line_look(number), "markersize": 5.0}
        style.band_line(axes, x, mean, half, **look)
        for rate, accuracy, _, size in points:
            words = f"{size} px (default)" if size == PACKAGED_IMAGE_SIZE else f"{size} px"
            axes.annotate(
                words,
                (rate, accuracy),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=style.SMALL_SIZE,
            )
    axes.set_xscale("log")
    ticks = [
        tick
        for tick in (100, 200, 500, 1000, 2000, 5000)
        if min(rates.values()) / 2 < tick < 2 * max(rates.values())
    ]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("images embedded a second")
    axes.set_ylabel("accuracy, %")
    style.open_axes(axes, "both")
    style.add_legend(figure, title=f"mean over {n_sources} sources\nband: 95 % interval")
    return figure


def _images_a_second(figures: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return how fast images of each side were embedded."""
    found = ((_WHAT.fullmatch(figure["what"]), figure["value"]) for figure in figures)
    return {int(match[1]): rate for match, rate in found if match}
