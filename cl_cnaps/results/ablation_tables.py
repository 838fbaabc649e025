"""Ablations in the shape of the paper's tables: for the terminal and, with the same cells, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from cl_cnaps.results.ablation import AblationRecord, Row
from cl_cnaps.results.ablation_differences import base_of, differences
from cl_cnaps.results.ablation_notes import notes
from cl_cnaps.results.ablation_values import (
    PRINTED,
    printed_rows,
    query_lines,
    recall_by_row,
    refinement_grid,
)
from cl_cnaps.results.few_shot_tables import data_set_words
from cl_cnaps.results.wording import ABSENT, adaptation_words, count, paper_cell, percent

_TITLES = {
    "metric": "metrics",
    "gmm": "Gaussian mixtures",
    "transduction": "transduction",
    "refinement": "refinement",
    "shots": "class recall against shots",
    "queries": "accuracy against queries",
}
_DOMAINS = {"in": "in-domain accuracy, %", "out": "out-of-domain accuracy and averages, %"}


@dataclass(frozen=True)
class _Block:
    """One table: a title, column titles, and rows of a label and cells."""

    title: str
    columns: list[str]
    rows: list[list[str]]


def ablation_tables(record: AblationRecord) -> list[Table]:
    """Tables for the terminal; `notes` say what must be known beside them."""
    tables = []
    for number, block in enumerate(_blocks(record)):
        table = Table(
            title=f"{' · '.join(setting_words(record))}\n{block.title}" if number == 0 else block.title,
            box=box.SIMPLE_HEAD,
            title_justify="left",
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        for place, column in enumerate(block.columns):
            table.add_column(column, justify="right" if place else "left", overflow="fold")
        for row in block.rows:
            table.add_row(*(cell.replace(" ± ", "±") for cell in row))
        tables.append(table)
    return tables


def ablation_markdown(record: AblationRecord, *, data_sets: bool = True) -> str:
    """The same tables in Markdown, with the setting above them and what must be known below.

    What there is to know about each data set may be left to a page that says it once.
    """
    lines = [f"**{' · '.join(setting_words(record))}**", ""]
    for block in _blocks(record):
        lines += [f"{block.title[0].upper()}{block.title[1:]}:", "", _markdown_row(block.columns)]
        lines.append(_markdown_row([":---", *["---:"] * (len(block.columns) - 1)]))
        lines += [_markdown_row(row) for row in block.rows] + [""]
    return (
        "\n".join([*lines, *(f"- {note}".replace("*", "\\*") for note in notes(record, data_sets=data_sets))])
        + "\n"
    )


def setting_words(record: AblationRecord) -> list[str]:
    """What all rows share."""
    row = record.rows[0]
    tasks = row["results"][0]["tasks"]
    words = [f"ablation of {_TITLES[record.which]}", row["backbone"], adaptation_words(row["adaptation"])]
    return [*words, f"{count(tasks, 'task')} of each data set"]


def _blocks(record: AblationRecord) -> list[_Block]:
    if record.which == "shots":
        return [_shots(record), *_differences(record)]
    if record.which == "queries":
        return [_queries(record)]
    rows = printed_rows(record)
    blocks = [block for domain in _DOMAINS if (block := _domain(rows, domain)) is not None]
    blocks += _differences(record, PRINTED.get(record.which))
    return [*blocks, _grid(record)] if record.which == "refinement" else blocks


def _differences(record: AblationRecord, printed: Sequence[str] | None = None) -> list[_Block]:
    """How far rows are from the one that they are compared with, on the same tasks."""
    found = [one for one in differences(record) if printed is None or one.row in printed]
    if not found:
        return []
    sets = {entry["data_set"]: data_set_words(entry) for entry in record.rows[0]["results"]}
    rows = [
        [one.title, _signed(one.mean, one.half), *(_signed(one.by_data_set[name]) for name in sets)]
        for one in found
    ]
    title = f"difference to {base_of(record)} on the same tasks, points"
    return [_Block(title, ["", "mean", *sets.values()], rows)]


def _signed(mean: float, half: float | None = None) -> str:
    points = round(100 * mean, 1) + 0.0  # no -0.0
    return f"{points:+.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def _domain(rows: Sequence[Row], domain: str) -> _Block | None:
    """The data sets of one domain, ours above the paper's; with the averages on the last table."""
    places = [i for i, entry in enumerate(rows[0]["results"]) if entry["domain"] == domain]
    if not places:
        return None
    last = domain == "out" or "out" not in rows[0]["averages"]
    averages = list(rows[0]["averages"]) if last else []
    columns = [data_set_words(rows[0]["results"][i]) for i in places]
    block = _Block(_DOMAINS[domain], ["", *columns, *(f"avg. {group}" for group in averages)], [])
    for row in rows:
        entries = [row["results"][i] for i in places]
        ours = [percent(entry["accuracy"]["mean"], entry["accuracy"]["ci95"]) for entry in entries]
        ours += [percent(row["averages"][group]["accuracy"]) for group in averages]
        theirs = [paper_cell(entry["paper"]) for entry in entries]
        theirs += [_per_cent(row["averages"][group]["paper"]) for group in averages]
        block.rows.append([row["title"], *ours])
        if set(theirs) != {ABSENT}:
            block.rows.append(["  paper", *theirs])
    return block


def _grid(record: AblationRecord) -> _Block:
    least, most, values = refinement_grid(record)
    return _Block(
        "mean accuracy over data sets, %, by least (down) and most steps of refinement (across)",
        ["", *map(str, most)],
        [[str(low), *map(percent, row)] for low, row in zip(least, values, strict=True)],
    )


def _shots(record: AblationRecord) -> _Block:
    bins, points = recall_by_row(record)
    rows = [
        [title, *(percent(of[one].recall / 100, of[one].half / 100) if one in of else ABSENT for one in bins)]
        for title, of in points.items()
    ]
    return _Block("class recall over all data sets, %, by shots of the class", ["", *bins], rows)


def _queries(record: AblationRecord) -> _Block:
    queries, lines = query_lines(record)
    rows = []
    for line in lines:
        cells = [line.accuracy.get(number, {"mean": None, "ci95": None}) for number in queries]
        rows.append([line.words, *(percent(cell["mean"], cell["ci95"]) for cell in cells)])
    return _Block("accuracy, %, by queries of each class", ["", *map(str, queries)], rows)


def _per_cent(mean: float | None) -> str:
    return ABSENT if mean is None else f"{mean:.1f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"
