"""The page of few-shot evaluation: for each benchmark a table of methods, ours above the paper's, with ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from cl_cnaps.few_shot.targets import COLUMNS as META_DATASET
from cl_cnaps.few_shot.targets import GROUPS, QUERIES
from cl_cnaps.metrics.intervals import average_rank
from cl_cnaps.records.record import record_name
from cl_cnaps.report.few_shot import FewShotView, data_set_notes, data_set_words, most_seen
from cl_cnaps.report.labels import Named, adaptation_words, distinct_names, model_name, percent, row_order
from cl_cnaps.report.paper import PaperRow, meta_dataset_rows, paper_rows
from cl_cnaps.report.site.coverage import TARGETS
from cl_cnaps.report.site.gather import Gathered, Page
from cl_cnaps.report.table import (
    EMPTY,
    Cell,
    Column,
    Kind,
    Table,
    TableRow,
    accuracy,
    printed,
    words,
)
from cl_cnaps.report.view import Row

_SHAPES = ("5-way 1-shot", "5-way 5-shot", "10-way 1-shot", "10-way 5-shot")
_DECIDED_BY_TARGET = ("target", "data_sets", "shapes", "backbone_digest")

Key = tuple[str, str, int]
"""Data set, shape of tasks, queries a class: what a column of accuracies is of."""


@dataclass(frozen=True)
class Benchmark:
    """One target: its table and its notes."""

    id: str
    title: str
    table: Table
    caveats: list[str]
    """What must be known before a number is compared with the paper's."""
    notes: list[str]
    measured: bool


def few_shot_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps evaluate` measured, and the paper's tables even where nothing was."""
    others = {record.rows[0]["target"] for record in found.few_shot} - TARGETS.keys()
    targets = TARGETS | {name: name for name in sorted(others)}
    return Page(
        "few-shot.html",
        "Few-shot learning",
        template="few_shot.html",
        content={
            "benchmarks": [_benchmark(found, name, title) for name, title in targets.items()],
            "experiments": [one for one in found.experiments if one.section == "Few-shot"],
        },
    )


def _benchmark(found: Gathered, target: str, title: str) -> Benchmark:
    records = [record for record in found.few_shot if record.rows[0]["target"] == target]
    records.sort(key=evaluation_order)
    columns = _columns(target, records)
    grouped = target == "meta-dataset"
    there = {entry["data_set"] for record in records for entry in record.rows}
    rows = [
        _row_here(name, record, columns, grouped)
        for name, record in zip(evaluation_names(records), records, strict=True)
    ]
    rows += [_row_printed(row, columns, grouped, there) for row in paper_rows(target)]
    headers = [
        Column("method", numeric=False),
        *(Column(column_title, group, chart=True) for column_title, group in columns.values()),
    ]
    if grouped:
        headers += [Column(group, "average, %", chart=True) for group in GROUPS]
        headers += [Column(group, "average rank", low_is_best=True) for group in GROUPS]
    notes = _notes(records, target, there)
    return Benchmark(
        id=record_name(target),
        title=title,
        table=Table(f"few-shot-{record_name(target)}", f"{title}: accuracy in per cent", headers, rows),
        caveats=[note.removeprefix("* ") for note in notes if note.startswith("* ")],
        notes=[note for note in notes if not note.startswith("* ")],
        measured=bool(records),
    )


def evaluation_names(records: Sequence[FewShotView]) -> list[str]:
    """What each evaluation's row is called."""
    named = []
    for record in records:
        first = record.rows[0]
        name = ", ".join(filter(None, (model_name(first["model"]), adaptation_words(first["adaptation"]))))
        named.append(Named(name, first["target"], record.record.config, record.record.id))
    return distinct_names(named, _DECIDED_BY_TARGET)


def evaluation_order(record: FewShotView) -> tuple[int, str, bool, int]:
    """Sort key: the models as everywhere, adapted features before frozen ones."""
    return row_order(record.rows[0])


def _columns(target: str, records: Iterable[FewShotView]) -> dict[Key, tuple[str, str | None]]:
    """What is in a column -> its title and group: the paper's columns, then others that were measured."""
    columns: dict[Key, tuple[str, str | None]] = {}
    if target == "meta-dataset":
        groups = {"in": "in-domain", "out": "out-of-domain"}
        columns = {(one.name, "variable", QUERIES): (one.title, groups[one.domain]) for one in META_DATASET}
    elif target in TARGETS:
        columns = {(target, shape, QUERIES): (shape, None) for shape in _SHAPES}
    for record in records:
        several = len({entry["data_set"] for entry in record.rows}) > 1
        for entry in record.rows:
            title = data_set_words(entry) if several else entry["shape"]
            if entry["queries"] != QUERIES:
                title += f", {entry['queries']} queries"
            group = columns.get(entry_key(entry), (None, None))[1]
            columns[entry_key(entry)] = (title, group)
    return columns


def entry_key(entry: Row) -> Key:
    """The column that an entry of a record belongs in."""
    return entry["data_set"], entry["shape"], entry["queries"]


def _row_here(name: str, record: FewShotView, columns: Iterable[Key], grouped: bool) -> TableRow:
    link = record.href
    cells = {
        entry_key(entry): accuracy(entry["accuracy"]["mean"], entry["accuracy"]["ci95"], link)
        for entry in record.rows
    }
    summed: list[Cell] = []
    if grouped:
        averages = [record.averages.get(group) for group in GROUPS]
        summed = [
            EMPTY if a is None else Cell(percent(a["accuracy"]), 100 * a["accuracy"], href=link)
            for a in averages
        ]
        summed += [EMPTY if a is None else _rank(a["rank"], link) for a in averages]
    return TableRow([words(name, link), *(cells.get(key, EMPTY) for key in columns), *summed])


def _row_printed(row: PaperRow, columns: Iterable[Key], grouped: bool, there: set[str]) -> TableRow:
    """A row of the paper; its averages and ranks are over the data sets that are there, or over all if none is."""
    cells = [
        printed(*row.cells[key[:2]]) if key[:2] in row.cells and key[2] == QUERIES else EMPTY
        for key in columns
    ]
    kind: Kind = "paper" if row.trained_on == "benchmark" else "paper-other"
    summed: list[Cell] = []
    if grouped:
        groups = [
            [one.name for one in META_DATASET if one.domain in domains and (one.name in there or not there)]
            for domains in GROUPS.values()
        ]
        summed = [_average(row, group) for group in groups]
        scores = meta_dataset_rows()
        ranked = kind == "paper"
        summed += [
            _rank(average_rank(row.name, group, scores), None) if ranked else EMPTY for group in groups
        ]
    other = "paper, ImageNet only" if grouped else "paper, more data"
    return TableRow([words(row.name), *cells, *summed], kind, "paper" if kind == "paper" else other)


def _average(row: PaperRow, data_sets: Sequence[str]) -> Cell:
    """Over the given data sets; none where the row lacks one."""
    figures = [row.cells.get((name, "variable")) for name in data_sets]
    known = [figure[0] for figure in figures if figure is not None]
    return printed(fmean(known)) if known and len(known) == len(figures) else EMPTY


def _rank(rank: float | None, link: str | None) -> Cell:
    return EMPTY if rank is None else Cell(f"{rank:.1f}", rank, href=link)


def _notes(records: Sequence[FewShotView], target: str, there: set[str]) -> list[str]:
    every = [entry for record in records for entry in record.rows]
    notes = data_set_notes(most_seen(every)) if every else []
    missing = (f"Missing: {one['title']}: {one['reason']}" for record in records for one in record.missing)
    notes += dict.fromkeys(missing)
    counts = [record.rows[0]["tasks"] for record in records]
    if len(set(counts)) > 1:
        each = zip(evaluation_names(records), counts, strict=True)
        notes.append("Tasks of each kind: " + "; ".join(f"{name}: {tasks:,}" for name, tasks in each) + ".")
    if records:
        notes.append("Ours: ± is the 95 % interval over tasks, 1.96 std / sqrt(tasks).")
    if target == "meta-dataset":
        over = "the data sets that are there" if there else "all data sets"
        notes.append(
            f"Averages and ranks are over {over}: in-domain, out-of-domain and both. A rank is one more than the "
            "number of methods that are significantly better. Ours are among the paper's rows and the row itself, the "
            "paper's among themselves; a row that lacks a data set has no average, and its rank is over those it has."
        )
    labels = dict.fromkeys(row.label for row in paper_rows(target))
    if labels:
        notes.append(f"Paper: {'; '.join(labels)}.")
    return notes
