"""The page of ablations: for each record what was changed, in the shape of the paper's table or figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cl_cnaps.few_shot.ablations import left_out
from cl_cnaps.few_shot.meta_dataset import GROUPS
from cl_cnaps.names import ABLATIONS
from cl_cnaps.report.ablation import AblationView, shown_averages
from cl_cnaps.report.few_shot import data_set_notes, data_set_words
from cl_cnaps.report.plots.style import OKABE_ITO
from cl_cnaps.report.site.few_shot import entry_key
from cl_cnaps.report.site.gather import Gathered
from cl_cnaps.report.view import record_link
from cl_cnaps.report.site.pages import Page
from cl_cnaps.report.table import EMPTY, MISSING, Cell, Column, TableRow, Table, accuracy, printed, words
from cl_cnaps.report.labels import adaptation_words, count, percent

_NAMED = 4
"""Most data sets that a title lists."""


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


@dataclass(frozen=True)
class Shown:
    """One ablation with its tables."""

    id: str
    title: str
    setting: str
    tables: list[Table]
    ranked: Table | None
    """The table whose rows are shown side by side."""
    curves: Curves | None
    notes: list[str]
    href: str


def ablations_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps ablate` measured."""
    ordered = ordered_ablations(found)
    about = dict.fromkeys(note for one in ordered for note in _of_data_sets(one))
    return Page(
        "ablations.html",
        "Ablations",
        template="ablations.html",
        scripts=("choosing.js", "tables.js", "ranking.js", "marks.js", "curves.js"),
        content={
            "shown": [
                _shown(one, place, title)
                for place, (one, title) in enumerate(zip(ordered, _titles(ordered), strict=True))
            ],
            "missing": missing_ablations(found),
            "about": list(about),
        },
    )


def ordered_ablations(found: Gathered) -> list[AblationView]:
    """As the paper has them, others last."""
    known = list(ABLATIONS)
    return sorted(found.ablations, key=lambda a: known.index(a.which) if a.which in known else len(known))


def missing_ablations(found: Gathered) -> list[tuple[str, str]]:
    """The paper's ablations that no record has, and the rows that those there lack, with commands that make them."""
    missing = []
    for which, title in ABLATIONS.items():
        mine = [one for one in found.ablations if one.which == which]
        absent = left_out(which, {row["row"] for one in mine for row in one.rows})
        command = ablate_command(which)
        if not mine:
            missing.append((title, command))
        elif absent:
            cells = sum(method.of_grid for method in absent)
            names = [method.title for method in absent if not method.of_grid]
            names += [f"{count(cells, 'cell')} of the grid"] if cells else []
            missing.append((f"{', '.join(names)} in {title}", command))
    return missing


def title_of(one: AblationView) -> str:
    """Return what an ablation changes, in words."""
    return ABLATIONS.get(one.which, one.which)


def ablate_command(which: str) -> str:
    """What makes an ablation; without specifications its tasks would have classes for training in them."""
    return f"cl-cnaps ablate {which}" + ("" if which == "queries" else " --specs FOLDER")


def _titles(ablations: Sequence[AblationView]) -> list[str]:
    """What each is called: by its data sets too, where several change the same."""
    several = {which for which, number in Counter(one.which for one in ablations).items() if number > 1}
    titles = []
    for one in ablations:
        names = list(dict.fromkeys(entry["title"] for row in one.rows for entry in row["results"]))
        on = ", ".join(names) if len(names) <= _NAMED else count(len(names), "data set")
        titles.append(f"{title_of(one)}, on {on}" if one.which in several else title_of(one))
    return titles


def _shown(one: AblationView, place: int, title: str) -> Shown:
    first = one.rows[0]
    words_of = [first["backbone"], adaptation_words(first["adaptation"])]
    table_id, tables, ranked, curves = f"ablation-table-{place + 1}", [], None, None
    if one.which == "shots":
        tables, curves = [recall_table(one, table_id)], recall_curves(one)
    elif one.which == "queries":
        tables, curves = [query_table(one, table_id)], query_curves(one)
    else:
        ranked = _table(one, table_id)
        tables = [ranked, _grid(one, f"{table_id}-grid")] if one.which == "refinement" else [ranked]
    return Shown(
        id=f"ablation-{place + 1}",
        title=title,
        setting=" · ".join(
            filter(None, [*words_of, count(first["results"][0]["tasks"], "task") + " of each kind"])
        ),
        tables=tables,
        ranked=ranked,
        curves=curves,
        notes=one.notes(data_sets=False),
        href=record_link(one.record),
    )


def _of_data_sets(one: AblationView) -> list[str]:
    """What holds of the data sets whatever is changed: ablations share them, so the page says it once, at its end."""
    return [note for note in data_set_notes(one.rows[0]["results"]) if not note.startswith("* ")]


def _table(one: AblationView, table_id: str) -> Table:
    """The methods on every data set, the paper's rows below; of a grid only the methods that the paper prints."""
    methods = one.printed_rows
    columns = {entry_key(e): _column_title(e, one) for row in methods for e in row["results"]}
    groups = [group for group in GROUPS if any(group in shown_averages(row["averages"]) for row in methods)]
    link = record_link(one.record)
    rows = []
    for row in methods:
        cells = {
            entry_key(entry): accuracy(entry["accuracy"]["mean"], entry["accuracy"]["ci95"], link)
            for entry in row["results"]
        }
        means = [_average(row["averages"].get(group), link) for group in groups]
        rows.append(TableRow([words(row["title"], link), *(cells.get(key, MISSING) for key in columns), *means]))
    width = len(columns) + len(groups)
    rows += [
        TableRow([words(method.title), *[MISSING] * width], "missing")
        for method in left_out(one.which, [row["row"] for row in one.rows])
        if not method.of_grid
    ]
    rows += [theirs for row in methods if (theirs := _printed(row, list(columns), groups)) is not None]
    return Table(
        table_id,
        f"{title_of(one)}: accuracy in per cent",
        [
            Column("method", numeric=False),
            *(Column(title, chart=True) for title in columns.values()),
            *(Column(group, "average, %", chart=True) for group in groups),
        ],
        rows,
    )


def _grid(one: AblationView, table_id: str) -> Table:
    """Mean accuracy for every least and most number of steps, as in the paper's fig:max-and-min."""
    least, most, values = one.refinement_grid()
    link = record_link(one.record)
    rows = [
        TableRow(
            [
                Cell(str(low), low),
                *(
                    EMPTY if low > high else MISSING if mean is None else accuracy(mean, None, link)
                    for high, mean in zip(most, of_low, strict=True)
                ),
            ]
        )
        for low, of_low in zip(least, values, strict=True)
    ]
    columns = [Column("least steps", low_is_best=True), *(Column(str(high), "most steps") for high in most)]
    return Table(table_id, f"{title_of(one)}: mean accuracy over data sets in per cent", columns, rows)


def _column_title(entry: Mapping[str, Any], one: AblationView) -> str:
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


def _printed(row: Mapping[str, Any], keys: list[Any], groups: list[str]) -> TableRow | None:
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
    return TableRow([words(row["title"]), *(cells.get(key, EMPTY) for key in keys), *shown], "paper", "paper")


def recall_table(one: AblationView, table_id: str) -> Table:
    """Class recall by shots, those of few classes taken together."""
    bins, points = one.recall_by_row()
    link = record_link(one.record)
    rows = [
        TableRow(
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
    return Table(table_id, f"{title_of(one)}: class recall over all data sets in per cent", columns, rows)


def recall_curves(one: AblationView) -> Curves:
    """The same as curves; a bin stands at the mean shots of its classes."""
    _, points = one.recall_by_row()
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


def query_table(one: AblationView, table_id: str) -> Table:
    """Accuracy by queries of each class: a row for each method on each kind of tasks."""
    queries, lines = one.query_lines()
    link = record_link(one.record)
    rows = []
    for line in lines:
        found = [line.accuracy.get(number) for number in queries]
        cells = [MISSING if a is None else accuracy(a["mean"], a["ci95"], link) for a in found]
        rows.append(TableRow([words(line.words, link), *cells]))
    columns = [
        Column("method and tasks", numeric=False),
        *(Column(str(n), "queries of each class") for n in queries),
    ]
    return Table(table_id, f"{title_of(one)}: accuracy in per cent", columns, rows)


def query_curves(one: AblationView) -> Curves:
    """The same as curves: a chart for each kind of tasks."""
    queries, lines = one.query_lines()
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


def _line(one: AblationView, chart: str, method: str, place: int) -> dict[str, Any]:
    return {
        "task": title_of(one),
        "chart": chart,
        "line": method,
        "colour": OKABE_ITO[place % len(OKABE_ITO)],
        "href": record_link(one.record),
    }
