"""Ablations that the paper shows as curves: class recall against shots, accuracy against queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cl_cnaps.results.ablation_values import query_lines, recall_by_row
from cl_cnaps.results.plots.style import OKABE_ITO
from cl_cnaps.results.report.ablation_rows import Ablation
from cl_cnaps.results.report.gather import record_link
from cl_cnaps.results.report.table import MISSING, Column, Row, Table, accuracy, words


@dataclass(frozen=True)
class Curves:
    """What curves.js draws: a chart for each kind of tasks, a line for each method."""

    what: str
    """What is drawn, in per cent."""
    along: str
    """What it is drawn against."""
    log: bool
    """Whether equal factors, not equal steps, are equally wide."""
    lines: list[dict[str, Any]]


def recall_table(one: Ablation, table_id: str) -> Table:
    """Class recall by shots, those of few classes taken together."""
    bins, points = recall_by_row(one.read)
    link = record_link(one.record)
    rows = [
        Row(
            [
                words(title, link),
                *(
                    accuracy(of[name].recall / 100, of[name].half / 100, link) if name in of else MISSING
                    for name in bins
                ),
            ]
        )
        for title, of in points.items()
    ]
    columns = [Column("method", numeric=False), *(Column(name, "shots of the class") for name in bins)]
    return Table(table_id, f"{one.title}: class recall over all data sets in per cent", columns, rows)


def recall_curves(one: Ablation) -> Curves:
    """The same as curves; a bin stands at the mean shots of its classes."""
    _, points = recall_by_row(one.read)
    lines = [
        {
            **_line(one, "All data sets", title, place),
            "at": [point.shots for point in of.values()],
            "said": list(of),
            "mean": [point.recall for point in of.values()],
            "half": [point.half for point in of.values()],
        }
        for place, (title, of) in enumerate(points.items())
    ]
    return Curves("class recall", "shots of the class", True, lines)


def query_table(one: Ablation, table_id: str) -> Table:
    """Accuracy by queries of each class: a row for each method on each kind of tasks."""
    queries, lines = query_lines(one.read)
    link = record_link(one.record)
    rows = []
    for line in lines:
        found = [line.accuracy.get(number) for number in queries]
        cells = [MISSING if a is None else accuracy(a["mean"], a["ci95"], link) for a in found]
        rows.append(Row([words(line.words, link), *cells]))
    columns = [
        Column("method and tasks", numeric=False),
        *(Column(str(n), "queries of each class") for n in queries),
    ]
    return Table(table_id, f"{one.title}: accuracy in per cent", columns, rows)


def query_curves(one: Ablation) -> Curves:
    """The same as curves: a chart for each kind of tasks."""
    queries, lines = query_lines(one.read)
    methods = list(dict.fromkeys(line.row for line in lines))
    drawn = []
    for line in lines:
        at = [number for number in queries if number in line.accuracy]
        means = [line.accuracy[number]["mean"] for number in at]
        halves = [line.accuracy[number]["ci95"] for number in at]
        drawn.append(
            {
                **_line(one, line.tasks, line.row, methods.index(line.row)),
                "at": at,
                "mean": [100 * mean for mean in means],
                "half": None if None in halves else [100 * half for half in halves],
            }
        )
    return Curves("accuracy", "queries of each class", False, drawn)


def _line(one: Ablation, chart: str, method: str, place: int) -> dict[str, Any]:
    return {
        "task": one.title,
        "chart": chart,
        "line": method,
        "colour": OKABE_ITO[place % len(OKABE_ITO)],
        "href": record_link(one.record),
    }
