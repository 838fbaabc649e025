"""Few-shot evaluations as a table: for the terminal and, with the same cells, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from cl_cnaps.errors import BadInputError
from cl_cnaps.results.few_shot import Entry
from cl_cnaps.results.few_shot_averages import Averages
from cl_cnaps.results.few_shot_notes import notes
from cl_cnaps.results.wording import (
    ABSENT,
    adaptation_words,
    count,
    duration,
    method_name,
    paper_cell,
    percent,
)

SEEN_MARK = "*"
GROUP_WORDS = {"in": "average, in-domain", "out": "average, out-of-domain", "all": "average, all"}


@dataclass(frozen=True)
class _Column:
    title: str
    short: str
    cell: Callable[[Entry], str]
    average: Callable[[Mapping[str, Any]], str]
    numeric: bool = True


@dataclass(frozen=True)
class _Row:
    cells: list[str]
    closes_group: bool = False


def data_set_words(entry: Entry) -> str:
    """The data set's title, what stands in for it, and a mark if its test classes are not new to the model."""
    stand_in = f" ({entry['stand_in']})" if entry["stand_in"] else ""
    return f"{entry['title']}{stand_in}" + (SEEN_MARK if seen(entry) else "")


def seen(entry: Entry) -> bool:
    """Whether test classes are not new to the backbone or to its adaptation."""
    return bool(entry["classes_seen_in_pretraining"] or entry.get("classes_seen_in_training"))


def _no_average(_: Mapping[str, Any]) -> str:
    return ""


_COLUMNS = (
    _Column("data set", "data set", data_set_words, _no_average, numeric=False),
    _Column("tasks of", "tasks of", lambda e: e["shape"], _no_average, numeric=False),
    _Column("queries a class", "queries", lambda e: str(e["queries"]), _no_average),
    _Column(
        "accuracy, %",
        "accuracy %",
        lambda e: percent(e["accuracy"]["mean"], e["accuracy"]["ci95"]),
        lambda a: percent(a["accuracy"]),
    ),
    _Column("paper, %", "paper %", lambda e: paper_cell(e["paper"]), lambda a: _per_cent(a["paper"])),
    _Column(
        "paper, trained on ImageNet, %",
        "ImageNet %",
        lambda e: paper_cell(e["paper_imagenet"]),
        lambda a: _per_cent(a["paper_imagenet"]),
    ),
    _Column("rank", "rank", lambda _: "", lambda a: f"{a['rank']:.1f}"),
    _Column(
        "paper's rank",
        "paper's",
        lambda _: "",
        lambda a: ABSENT if a["paper_rank"] is None else f"{a['paper_rank']:.1f}",
    ),
    _Column("seconds", "sec.", lambda e: duration(e["seconds"]), _no_average),
)


def few_shot_table(
    entries: Sequence[Entry], averages: Averages, missing: Sequence[Mapping[str, Any]] = ()
) -> Table:
    """A table for the terminal."""
    heading, columns, rows = _layout(entries, averages, missing)
    table = Table(
        title=heading,
        caption="\n".join(notes(entries, averages)),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        table.add_column(column.short, justify="right" if column.numeric else "left", overflow="fold")
    for row in rows:
        cells = (cell.replace(" ± ", "±") for cell in row.cells)
        table.add_row(*cells, end_section=row.closes_group)
    return table


def few_shot_markdown(
    entries: Sequence[Entry], averages: Averages, missing: Sequence[Mapping[str, Any]] = ()
) -> str:
    """The same table in Markdown, with the shared setting above it and what must be known below."""
    heading, columns, rows = _layout(entries, averages, missing)
    lines = [
        f"**{heading}**",
        "",
        _markdown_row([column.title for column in columns]),
        _markdown_row(["---:" if column.numeric else ":---" for column in columns]),
        *(_markdown_row([cell.replace(SEEN_MARK, f"\\{SEEN_MARK}") for cell in row.cells]) for row in rows),
        "",
        *(f"- {note}" for note in notes(entries, averages)),
    ]
    return "\n".join(lines) + "\n"


def _layout(
    entries: Sequence[Entry], averages: Averages, missing: Sequence[Mapping[str, Any]]
) -> tuple[str, list[_Column], list[_Row]]:
    """Heading, columns and rows; a column of cells that are all alike, or all empty, is left out."""
    if not entries:
        raise BadInputError("a table of evaluations needs at least one entry")
    constant = ("tasks of", "queries a class")
    columns = [
        column
        for column in _COLUMNS
        if (column.title not in constant or len({column.cell(entry) for entry in entries}) > 1)
        and (column.title not in ("rank", "paper's rank") or averages)
        and (not column.title.startswith("paper,") or any(column.cell(e) != ABSENT for e in entries))
    ]
    rows: list[_Row] = []
    for domain in ("in", "out", None):
        mine = [entry for entry in entries if entry["domain"] == domain]
        absent = [one for one in missing if one["domain"] == domain]
        rows += [_Row([column.cell(entry) for column in columns]) for entry in mine]
        rows += [_Row([one["title"], "missing", *[""] * (len(columns) - 2)]) for one in absent]
        if domain in averages:
            rows.append(_average(columns, domain, averages, closes_group=True))
    if "all" in averages:
        rows.append(_average(columns, "all", averages))
    return _heading(entries, columns), columns, rows


def _average(columns: Sequence[_Column], group: str, averages: Averages, closes_group: bool = False) -> _Row:
    cells = [column.average(averages[group]) for column in columns[1:]]
    return _Row([GROUP_WORDS[group], *cells], closes_group)


def _heading(entries: Sequence[Entry], columns: Sequence[_Column]) -> str:
    first, shown = entries[0], {column.title for column in columns}
    words = [
        first["target"],
        method_name(first),
        first["backbone"],
        adaptation_words(first["adaptation"]),
    ]
    if "tasks of" not in shown:
        words.append("variable ways and shots" if first["shape"] == "variable" else first["shape"])
    words.append(count(first["tasks"], "task"))
    return " · ".join(filter(None, words))


def _per_cent(mean: float | None) -> str:
    return ABSENT if mean is None else f"{mean:.1f}"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
