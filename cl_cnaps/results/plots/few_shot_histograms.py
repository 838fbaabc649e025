"""How many ways and shots the tasks had (`fig:ways-frequency`, `fig:shot-frequency`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cl_cnaps.results.few_shot import EPISODES, RECALL, FewShotRecord
from cl_cnaps.results.plots.few_shot_words import record_words
from cl_cnaps.results.plots.style import GRID, OKABE_ITO, new_figure


def histogram_figure(record: FewShotRecord) -> Figure:
    """Tasks by their number of ways; classes by their number of shots, in all tasks of the record."""
    episodes, recall = record.record.table(EPISODES), record.record.table(RECALL)
    some = episodes[0]["queries"]  # tasks with varied queries are the same tasks: count them once
    ways = Counter(int(row["ways"]) for row in episodes if row["queries"] == some)
    shots: Counter[int] = Counter()
    for row in recall:
        if row["queries"] == some:
            shots[int(row["shots"])] += int(row["classes"])
    figure = new_figure(7.2, 2.9, record_words(record))
    left, right = figure.subplots(1, 2)
    _histogram(left, ways, "ways of the task", "tasks", OKABE_ITO[0])
    _histogram(right, shots, "shots of the class", "classes", OKABE_ITO[2])
    return figure


def _histogram(axes: Axes, counts: Mapping[int, int], what: str, of: str, colour: str) -> None:
    axes.bar(list(counts), list(counts.values()), width=0.9, color=colour)
    # Room around a single bar, which would else fill the chart.
    axes.set_xlim(min(0, min(counts) - 1), max(counts) + max(1.0, 0.04 * max(counts)))
    axes.set_xlabel(what)
    axes.set_ylabel(f"number of {of}")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
