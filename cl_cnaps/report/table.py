"""One description of a table: columns, rows and what rows share; rendered for the terminal, Markdown and HTML.

The HTML is made by the templates of the site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from cl_cnaps.errors import escaped
from cl_cnaps.report.labels import ABSENT, distinguish, paper_cell, percent

Kind = Literal["here", "each", "paper", "paper-other"]
"""Where a row is from: measured here (`each`: one of several that a row stands for), the paper (its second setting)."""

KIND_WORDS: dict[Kind, str] = {
    "here": "measured here",
    "each": "each encoding",
    "paper": "paper",
    "paper-other": "paper, other training data",
}


@dataclass(frozen=True)
class Cell:
    """Text, and what sorting and charts read."""

    text: str
    value: float | str | None = None
    """What the column is sorted by; None stays last in either direction."""
    half: float | None = None
    """Half of the 95 % interval, in the unit of `value`."""
    href: str | None = None
    state: Literal["plain", "empty", "code", "date"] = "plain"
    spoken: str | None = None
    """What a screen reader reads out where the text alone would not do."""


@dataclass(frozen=True)
class Column:
    """A column's header."""

    title: str
    group: str | None = None
    """What it shares with its neighbours, written above them."""
    numeric: bool = True
    low_is_best: bool = False
    """Whether sorting starts with the smallest number."""
    chart: bool = False
    """Whether the ranking chart offers this column: accuracies in per cent."""
    short: str | None = None
    """The title on a terminal, where ten columns must fit 80 characters."""
    cell: Callable[[Mapping[str, Any]], str] | None = None
    """The text of a record's row in this column, for `table_of`."""


@dataclass(frozen=True)
class TableRow:
    """A row; the first cell is its header."""

    cells: Sequence[Cell]
    kind: Kind = "here"
    tag: str | None = None
    """Stands beside the header: whose row it is, where it is not ours."""
    below: bool = False
    """Whether it belongs to the row above, whose name is not repeated in text."""
    ends_section: bool = False
    """Whether a line stands below it on a terminal."""


@dataclass(frozen=True)
class Table:
    """A table with an id of its own on the page."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    shared: Sequence[str] = ()
    """What all rows have in common, written once above them."""
    notes: Sequence[str] = ()
    """What a reader must know, written below."""
    leading: int = 0
    """Columns that a terminal has no room for: their cells stand on a line of their own above the rows they share."""

    @property
    def groups(self) -> list[tuple[str | None, list[Column]]]:
        """The columns by what stands above them; each column without a group is by itself."""
        runs = groupby(enumerate(self.columns), key=lambda one: one[1].group or one[0])
        return [(some[0].group, some) for _, run in runs for some in [[column for _, column in run]]]

    @property
    def grouped(self) -> bool:
        """Whether there is a line of groups above the titles."""
        return any(column.group for column in self.columns)

    @property
    def kinds(self) -> list[tuple[Kind, str]]:
        """The kinds of rows that are there, for choosing among them."""
        present = {row.kind for row in self.rows}
        return [(kind, words) for kind, words in KIND_WORDS.items() if kind in present]


EMPTY = Cell(ABSENT, state="empty", spoken="none")


def accuracy(mean: float | None, ci95: float | None = None, href: str | None = None) -> Cell:
    """A fraction measured here, in per cent; None where there is none."""
    if mean is None:
        return EMPTY
    return Cell(percent(mean, ci95), 100 * mean, None if ci95 is None else 100 * ci95, href)


def signed(mean: float, ci95: float | None = None, href: str | None = None) -> Cell:
    """A difference of fractions, in points with its sign."""
    points = round(100 * mean, 1) + 0.0  # no -0.0
    text = f"{points:+.1f}" + ("" if ci95 is None else f" ± {100 * ci95:.1f}")
    return Cell(text, 100 * mean, None if ci95 is None else 100 * ci95, href)


def printed(mean: float, interval: float | None = None) -> Cell:
    """A number in per cent as the paper prints it."""
    return Cell(paper_cell({"mean": mean, "interval": interval}), mean, interval)


def words(text: str, href: str | None = None) -> Cell:
    """Text that is sorted as text."""
    return Cell(text, text.casefold(), href=href)


def text_column(title: str, cell: Callable[[Mapping[str, Any]], str] | None = None) -> Column:
    """A column of words."""
    return Column(title, numeric=False, cell=cell)


def table_of(
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    settings: Sequence[Column],
    columns: Sequence[Column],
    notes: Sequence[str] = (),
    *,
    more: Sequence[Mapping[str, Any]] = (),
) -> Table:
    """Make a table of rows: settings that all rows share stand above it, those that differ are columns.

    `more` rows are shown below, and do not decide what is shared.
    """
    values = [{one.title: one.cell(row) for one in settings if one.cell} for row in rows]
    differing, shared = distinguish(values)
    leading = [one for one in settings if one.title in differing]
    shown = [*leading, *columns]
    cells = [[Cell(one.cell(row) or ABSENT) for one in shown if one.cell] for row in (*rows, *more)]
    above = [values[0][title] for title in shared if values[0][title]]
    return Table("", caption, shown, [TableRow(row) for row in cells], above, notes, leading=len(leading))


def terminal_table(table: Table) -> RenderableType:
    """Render a table for the terminal; its notes below take the terminal's whole width."""
    rendered = RichTable(
        title=escaped(" · ".join(table.shared) or table.caption),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for column in table.columns[table.leading :]:
        side: Any = "right" if column.numeric else "left"
        rendered.add_column(column.short or column.title, justify=side, overflow="fold")
    before: list[str] | None = None
    for row in table.rows:
        cells = [escaped(text.replace(" ± ", "±")) for text in _texts(row)]
        above = cells[: table.leading]
        if table.leading and above != before:
            rendered.add_row(" · ".join(text for text in above if text != ABSENT), style="bold")
        before = above
        rendered.add_row(*cells[table.leading :], end_section=row.ends_section)
    return Group(rendered, *(Text(escaped(note), style="italic dim") for note in table.notes))


def markdown_table(table: Table) -> str:
    """Render a table in Markdown, with what rows share above it and the notes below."""
    lines = [f"**{_escaped(' · '.join(table.shared))}**", ""] if table.shared else []
    titles = [f"{c.group}, {c.title}" if c.group else c.title for c in table.columns]
    lines += [_markdown_row(titles), _markdown_row(["---:" if c.numeric else ":---" for c in table.columns])]
    lines += [_markdown_row(_texts(row)) for row in table.rows]
    if table.notes:
        lines += ["", *(f"- {_escaped(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def _texts(row: TableRow) -> list[str]:
    """The cells as text; a row that is not ours is named by whose it is."""
    name, *others = [cell.text for cell in row.cells]
    if row.tag:
        name = f"  {row.tag}" if row.below else f"{row.tag}: {name}"
    return [name, *others]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")
