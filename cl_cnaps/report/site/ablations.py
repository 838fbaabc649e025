"""The page of ablations: for each what was changed, in the shape of the paper's table or figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cl_cnaps.names import ABLATIONS
from cl_cnaps.report.ablation import FIGURE_TITLES, AblationView
from cl_cnaps.report.few_shot import data_set_notes
from cl_cnaps.report.findings import ablation_sentence
from cl_cnaps.report.labels import adaptation_words, count
from cl_cnaps.report.plots import style
from cl_cnaps.report.plots.style import OKABE_ITO
from cl_cnaps.report.site.gather import Gathered, Page
from cl_cnaps.report.table import Table
from cl_cnaps.report.view import page_name

_NAMED = 4
"""Most data sets that a title lists."""
_DRAWN_HERE = ("shots", "queries")
"""Ablations whose curves the page draws itself, so that a point tells its number."""


@dataclass(frozen=True)
class Curves:
    """What the page's script draws: a chart for each kind of tasks, a line for each method."""

    what: str
    """What is drawn, in per cent."""
    along: str
    """What it is drawn against."""
    log: bool
    """Whether equal factors, not equal steps, are equally wide."""
    lines: list[dict[str, Any]]


@dataclass(frozen=True)
class Shown:
    """One record of an ablation with its tables."""

    on: str
    """Its data sets, where several records change the same."""
    setting: str
    found: str
    """Which rows are ahead, level and behind, in a sentence."""
    tables: list[Table]
    folded: list[Table]
    """Tables that open on demand: every data set, where a chart and the differences tell the result."""
    ranked: Table | None
    """The table whose rows are shown side by side."""
    curves: Curves | None
    figures: list[tuple[str, str]]
    """Files and what they show."""
    caveats: list[str]
    """What must be known before a number is compared with the paper's."""
    notes: list[str]
    href: str


@dataclass(frozen=True)
class Changed:
    """An ablation: what it changes, and its records."""

    id: str
    title: str
    shown: list[Shown]


def ablations_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps ablate` measured."""
    names = [*ABLATIONS, *sorted({one.which for one in found.ablations} - set(ABLATIONS))]
    groups = {name: [one for one in found.ablations if one.which == name] for name in names}
    changed = [
        Changed(
            f"ablation-{name}",
            ABLATIONS.get(name, name),
            [_shown(one, f"{name}-{index + 1}", several=len(views) > 1) for index, one in enumerate(views)],
        )
        for name, views in groups.items()
        if views
    ]
    about = [note for views in groups.values() for one in views for note in _of_data_sets(one)]
    return Page(
        "ablations.html",
        "Ablations",
        template="ablations.html",
        content={
            "changed": changed,
            "about": list(dict.fromkeys(about)),
            "experiments": [one for one in found.experiments if one.section == "Ablations"],
        },
    )


def draw_figures(found: Gathered, folder: Path | None) -> None:
    """Draw the figures that the page shows, as the documentation has them; without a folder nothing is written."""
    for one in found.ablations:
        if one.which in _DRAWN_HERE:
            continue
        if folder is not None:
            style.draw(AblationView.figures([one]), folder / "figures" / page_name(one.record), ["png"])
        else:
            list(AblationView.figures([one]))


def _shown(one: AblationView, table_id: str, *, several: bool) -> Shown:
    first = one.rows[0]
    names = list(dict.fromkeys(entry["title"] for row in one.rows for entry in row["results"]))
    on = ", ".join(names) if len(names) <= _NAMED else count(len(names), "data set")
    setting = [first["backbone"], adaptation_words(first["adaptation"])]
    setting.append(count(first["results"][0]["tasks"], "task") + " of each kind")
    curves = {"shots": recall_curves, "queries": query_curves}.get(one.which)
    tables = [
        replace(table, id=f"{table_id}-{index + 1}", shared=(), notes=())
        for index, table in enumerate(one.own_tables(data_sets=False))
    ]
    tables = [replace(table, caption=table.caption[:1].upper() + table.caption[1:]) for table in tables]
    wide = [table for table in tables if any(column.chart for column in table.columns)]
    ranked = wide[-1] if wide and one.which != "adaptation" else None
    folded = (
        [] if ranked is None else [table for table in tables if table in wide or "steps" in table.caption]
    )
    drawn = () if one.which in _DRAWN_HERE else one.figure_names
    notes = one.notes(data_sets=False)
    return Shown(
        on=on if several else "",
        setting=" · ".join(filter(None, setting)),
        found=ablation_sentence(one),
        tables=[table for table in tables if table not in folded],
        folded=folded,
        ranked=ranked,
        curves=curves(one) if curves else None,
        figures=[(f"figures/{page_name(one.record)}/{stem}.png", FIGURE_TITLES[stem]) for stem in drawn],
        caveats=[note.removeprefix("* ") for note in notes if note.startswith("* ")],
        notes=[note for note in notes if not note.startswith("* ")],
        href=one.href,
    )


def _of_data_sets(one: AblationView) -> list[str]:
    """What holds of the data sets whatever is changed: ablations share them, so the page has it once, at its end."""
    return [note for note in data_set_notes(one.rows[0]["results"]) if not note.startswith("* ")]


def recall_curves(one: AblationView) -> Curves:
    """Class recall against shots; a bin stands at the mean shots of its classes."""
    _, points = one.recall_by_row()
    lines = [
        {
            **_line(one, "All data sets", title, list(points)),
            "at": [point.shots for point in of.values()],
            "labels": list(of),
            "mean": [point.recall for point in of.values()],
            "half": [point.half for point in of.values()],
        }
        for title, of in points.items()
    ]
    return Curves("class recall", "shots of the class", True, lines)


def query_curves(one: AblationView) -> Curves:
    """Accuracy against queries: a chart for each kind of tasks."""
    queries, lines = one.query_lines()
    methods = list(dict.fromkeys(line.row for line in lines))
    drawn = []
    for line in lines:
        at = [number for number in queries if number in line.accuracy]
        halves = [line.accuracy[number]["ci95"] for number in at]
        drawn.append(
            {
                **_line(one, line.tasks, line.row, methods),
                "at": at,
                "mean": [100 * line.accuracy[number]["mean"] for number in at],
                "half": None if None in halves else [100 * half for half in halves],
            }
        )
    return Curves("accuracy", "queries of each class", False, drawn)


def _line(one: AblationView, chart: str, method: str, methods: Sequence[str]) -> dict[str, Any]:
    return {
        "task": one.which,
        "chart": chart,
        "line": method,
        "colour": OKABE_ITO[methods.index(method) % len(OKABE_ITO)],
        "href": one.href,
    }
