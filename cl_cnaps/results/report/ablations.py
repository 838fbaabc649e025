"""The page of ablations: for each record a table of its methods, the paper's rows below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cl_cnaps.results.few_shot_averages import GROUPS
from cl_cnaps.results.few_shot_notes import data_set_notes
from cl_cnaps.results.few_shot_tables import data_set_words
from cl_cnaps.results.report.ablation_rows import ABLATIONS, Ablation
from cl_cnaps.results.report.few_shot import entry_key
from cl_cnaps.results.report.gather import Gathered, record_link
from cl_cnaps.results.report.pages import Page
from cl_cnaps.results.report.table import EMPTY, MISSING, Cell, Column, Row, Table, accuracy, printed, words
from cl_cnaps.results.wording import adaptation_words, count, percent


@dataclass(frozen=True)
class Shown:
    """One ablation with its table."""

    id: str
    title: str
    setting: str
    table: Table
    notes: list[str]
    href: str


def ablations_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps ablate` measured."""
    known = list(ABLATIONS)
    ordered = sorted(found.ablations, key=lambda a: known.index(a.which) if a.which in known else len(known))
    return Page(
        "ablations.html",
        "Ablations",
        template="ablations.html",
        scripts=("choosing.js", "tables.js", "ranking.js"),
        content={
            "shown": [_shown(one, place) for place, one in enumerate(ordered)],
            "missing": missing_ablations(found),
        },
    )


def missing_ablations(found: Gathered) -> list[tuple[str, str]]:
    """The paper's ablations that no record has, with the command that makes each."""
    present = {one.which for one in found.ablations}
    return [(title, f"cl-cnaps ablate {which}") for which, title in ABLATIONS.items() if which not in present]


def _shown(one: Ablation, place: int) -> Shown:
    first = one.rows[0]
    entries = first["results"]
    words_of = [first["backbone"], adaptation_words(first["adaptation"])]
    notes = data_set_notes(entries)
    notes += [f"Missing: {', '.join(one.missing)}."] if one.missing else []
    labels = dict.fromkeys(e["paper"]["label"] for row in one.rows for e in row["results"] if e["paper"])
    notes += [f"Paper: {', '.join(labels)}."] if labels else []
    return Shown(
        id=f"ablation-{place + 1}",
        title=one.title,
        setting=" · ".join(filter(None, [*words_of, count(entries[0]["tasks"], "task") + " of each kind"])),
        table=_table(one, place),
        notes=notes,
        href=record_link(one.record),
    )


def _table(one: Ablation, place: int) -> Table:
    columns = {entry_key(e): _column_title(e, one) for row in one.rows for e in row["results"]}
    groups = [group for group in GROUPS if any(group in row["averages"] for row in one.rows)]
    link = record_link(one.record)
    rows = []
    for row in one.rows:
        cells = {
            entry_key(entry): accuracy(entry["accuracy"]["mean"], entry["accuracy"]["ci95"], link)
            for entry in row["results"]
        }
        means = [_average(row["averages"].get(group), link) for group in groups]
        rows.append(Row([words(row["title"], link), *(cells.get(key, MISSING) for key in columns), *means]))
    rows += [theirs for row in one.rows if (theirs := _printed(row, list(columns), groups)) is not None]
    return Table(
        f"ablation-table-{place + 1}",
        f"{one.title}: accuracy in per cent",
        [
            Column("method", numeric=False),
            *(Column(title, chart=True) for title in columns.values()),
            *(Column(group, "average, %", chart=True) for group in groups),
        ],
        rows,
    )


def _column_title(entry: Mapping[str, Any], one: Ablation) -> str:
    """The data set, and of the shape of its tasks what differs between columns."""
    entries = one.rows[0]["results"]
    title = data_set_words(dict(entry))
    if len({other["shape"] for other in entries}) > 1:
        title += f", {entry['shape']}"
    if len({other["queries"] for other in entries}) > 1:
        title += f", {entry['queries']} queries"
    return title


def _average(average: Mapping[str, Any] | None, link: str) -> Cell:
    if average is None:
        return MISSING
    return Cell(percent(average["accuracy"]), 100 * average["accuracy"], href=link)


def _printed(row: Mapping[str, Any], keys: list[Any], groups: list[str]) -> Row | None:
    """The paper's row of the same method, if it has any number for it."""
    cells = {
        entry_key(entry): printed(entry["paper"]["mean"], entry["paper"]["interval"])
        for entry in row["results"]
        if entry["paper"]
    }
    if not cells:
        return None
    means = [row["averages"].get(group, {}).get("paper") for group in groups]
    shown = [EMPTY if mean is None else printed(mean) for mean in means]
    return Row([words(row["title"]), *(cells.get(key, EMPTY) for key in keys), *shown], "paper", "paper")
