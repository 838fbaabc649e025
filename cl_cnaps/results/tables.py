"""Streams side by side as a table: for the terminal and, with the same cells, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from cl_cnaps.errors import BadInputError
from cl_cnaps.results.streams import Summary
from cl_cnaps.results.wording import (
    ABSENT,
    adaptation_words,
    count,
    duration,
    method_name,
    paper_cell,
    percent,
    size,
)


@dataclass(frozen=True)
class _Column:
    title: str
    short: str
    """For the terminal, where ten columns must fit 80 characters."""
    cell: Callable[[Summary], str]
    numeric: bool = True


# What the rows share is said once, above the table; what differs gets a column.
_SETTING = (
    _Column("benchmark", "benchmark", lambda s: s["benchmark"], numeric=False),
    _Column("model", "model", method_name, numeric=False),
    _Column("backbone", "backbone", lambda s: s["backbone"] or "", numeric=False),
    _Column("adaptation", "adaptation", lambda s: adaptation_words(s["adaptation"]), numeric=False),
    _Column("shots", "shots", lambda s: count(s["shots"], "shot")),
    _Column("runs", "runs", lambda s: count(s["runs"], "run")),
)
_COLUMNS = (
    _Column("encoding", "encoding", lambda s: s["encoding"] or ABSENT, numeric=False),
    _Column("head", "head", lambda s: s["head"], numeric=False),
    _Column(
        "final accuracy, %",
        "final %",
        lambda s: percent(s["final_accuracy"]["mean"], s["final_accuracy"]["ci95"]),
    ),
    _Column("paper, %", "paper %", lambda s: paper_cell(s["paper"])),
    _Column("forgetting, points", "forget", lambda s: percent(s["forgetting"])),
    _Column("backward transfer, points", "BWT", lambda s: percent(s["backward_transfer"])),
    _Column("average incremental accuracy, %", "incr.", lambda s: percent(s["average_incremental_accuracy"])),
    _Column("seconds", "sec.", lambda s: duration(s["seconds"])),
    _Column("memory kept", "memory", lambda s: size(s["memory_bytes"])),
)
_NARROWEST = len("Transductive")
"""Names may wrap between words but not within one."""


def stream_table(summaries: Sequence[Summary]) -> Table:
    """A table for the terminal, one row per entry; it fits 80 characters if the rows share a setting."""
    heading, columns, rows = _layout(summaries)
    explained = [
        "final: mean accuracy over all tasks after the last; forget: points lost since a task's best;",
        "BWT: backward transfer; incr.: average incremental accuracy; memory: kept between tasks.",
        _caption(summaries),
    ]
    table = Table(
        title=heading,
        caption=" ".join(explained),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 0) if len(columns) > len(_COLUMNS) else (0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        if column in _COLUMNS:
            table.add_column(column.short, justify="right" if column.numeric else "left", overflow="fold")
        else:
            table.add_column(column.short, overflow="fold", min_width=_NARROWEST)
    for row in rows:
        table.add_row(*(cell.replace(" ± ", "±") for cell in row))
    return table


def stream_markdown(summaries: Sequence[Summary]) -> str:
    """The same table in Markdown, with the shared setting above it and the legend below."""
    heading, columns, rows = _layout(summaries)
    lines = [
        f"**{heading}**",
        "",
        _markdown_row([column.title for column in columns]),
        _markdown_row(["---:" if column.numeric else ":---" for column in columns]),
        *(_markdown_row(row) for row in rows),
        "",
        _caption(summaries),
    ]
    return "\n".join(lines) + "\n"


def _layout(summaries: Sequence[Summary]) -> tuple[str, list[_Column], list[list[str]]]:
    """Heading, columns and cells."""
    if not summaries:
        raise BadInputError("a table of streams needs at least one summary")
    differing = [column for column in _SETTING if len({column.cell(s) for s in summaries}) > 1]
    shared = [column.cell(summaries[0]) for column in _SETTING if column not in differing]
    columns = [*differing, *_COLUMNS]
    rows = [[column.cell(summary) or ABSENT for column in columns] for summary in summaries]
    return " · ".join(filter(None, shared)), columns, rows


def _caption(summaries: Sequence[Summary]) -> str:
    runs = {summary["runs"] for summary in summaries}
    labels = sorted({summary["paper"]["label"] for summary in summaries if summary["paper"]})
    sentences = []
    if max(runs) > 1:
        sentences.append("±: 95 % interval over runs (Student's t).")
    if 1 in runs:
        sentences.append("A single run has no interval.")
    if labels:
        sentences.append(f"Paper: {', '.join(labels)}.")
    return " ".join(sentences)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
