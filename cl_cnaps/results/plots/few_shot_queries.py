"""Accuracy against the number of queries of each class, where it was varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from cl_cnaps.results.few_shot import Entry, FewShotRecord
from cl_cnaps.results.plots.few_shot_words import record_words, told_apart
from cl_cnaps.results.plots.style import GRID, OKABE_ITO, SMALL_SIZE, new_figure

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)))


def varies_queries(record: FewShotRecord) -> bool:
    """Whether a record has tasks with several numbers of queries."""
    return len({entry["queries"] for entry in record.entries}) > 1


def queries_figure(records: Sequence[FewShotRecord]) -> Figure:
    """A line for each data set and task shape of each record; the axis spans the data, since differences are small."""
    labels, title = told_apart(records) if len(records) > 1 else ([""], record_words(records[0]))
    return queries_by_method(
        title, {label: record.entries for label, record in zip(labels, records, strict=True)}
    )


def queries_by_method(title: Sequence[str], methods: Mapping[str, Sequence[Entry]]) -> Figure:
    """A line for each data set and task shape of each method."""
    figure = new_figure(7.2, 3.6, title)
    axes = figure.subplots()
    lines = {
        ", ".join(filter(None, (label, name))): mine
        for label, entries in methods.items()
        for name, mine in _lines(entries).items()
    }
    for number, (label, entries) in enumerate(lines.items()):
        entries = sorted(entries, key=lambda entry: int(entry["queries"]))
        queries = [entry["queries"] for entry in entries]
        mean = np.array([100 * entry["accuracy"]["mean"] for entry in entries])
        half = np.array([100 * (entry["accuracy"]["ci95"] or 0.0) for entry in entries])
        colour = OKABE_ITO[number % len(OKABE_ITO)]
        axes.fill_between(queries, mean - half, mean + half, color=colour, alpha=0.13, linewidth=0)
        axes.plot(
            queries,
            mean,
            color=colour,
            linestyle=_DASHES[number // len(OKABE_ITO) % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4.0,
            linewidth=1.6,
            label=label,
        )
    axes.set_xticks(sorted({entry["queries"] for entries in methods.values() for entry in entries}))
    axes.set_xlabel("queries of each class")
    axes.set_ylabel("accuracy, %")
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        loc="outside right center",
        frameon=False,
        fontsize=SMALL_SIZE,
        title="band: 95 % over tasks",
        title_fontsize=SMALL_SIZE,
        alignment="left",
        handlelength=3.0,
    )
    return figure


def _lines(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """The entries of each data set and task shape."""
    lines: dict[str, list[Entry]] = {}
    for entry in entries:
        words = entry["title"] if entry["shape"] == "variable" else f"{entry['title']} {entry['shape']}"
        lines.setdefault(words, []).append(entry)
    return lines
