"""Tables as data: what a cell shows, what it sorts by and which record it is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from cl_cnaps.results.wording import ABSENT, percent

Kind = Literal["here", "paper", "paper-other", "missing"]
"""Where a row is from: measured here, the paper (its second setting: other training data), or not there yet."""

KIND_WORDS: dict[Kind, str] = {
    "here": "measured here",
    "missing": "missing",
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
    state: Literal["plain", "missing", "empty", "code", "date"] = "plain"
    says: str | None = None
    """What a screen reader says where the text alone would not do."""


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


@dataclass(frozen=True)
class Row:
    """A row; the first cell is its header."""

    cells: Sequence[Cell]
    kind: Kind = "here"
    tag: str | None = None
    """Stands beside the header: whose row it is, where it is not ours."""


@dataclass(frozen=True)
class Table:
    """A table with an id of its own on the page."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    @property
    def groups(self) -> list[tuple[str | None, list[Column]]]:
        """The columns by what stands above them; each column without a group is by itself."""
        runs = groupby(self.columns, key=lambda column: column.group)
        parts = [(group, list(columns)) for group, columns in runs]
        return [
            (group, some)
            for group, columns in parts
            for some in ([columns] if group else [[c] for c in columns])
        ]

    @property
    def grouped(self) -> bool:
        """Whether there is a line of groups above the titles."""
        return any(column.group for column in self.columns)

    @property
    def kinds(self) -> list[tuple[Kind, str]]:
        """The kinds of rows that are there, for choosing among them."""
        present = {row.kind for row in self.rows}
        return [(kind, words) for kind, words in KIND_WORDS.items() if kind in present]


MISSING = Cell("missing", state="missing", says="missing: not measured yet")
EMPTY = Cell(ABSENT, state="empty", says="none")


def accuracy(mean: float, ci95: float | None, href: str) -> Cell:
    """A fraction measured here, in per cent."""
    return Cell(percent(mean, ci95), 100 * mean, None if ci95 is None else 100 * ci95, href)


def printed(mean: float, interval: float | None = None) -> Cell:
    """A number in per cent as the paper prints it."""
    text = f"{mean:.1f}" + ("" if interval is None else f" ± {interval:.1f}")
    return Cell(text, mean, interval)


def words(text: str, href: str | None = None) -> Cell:
    """Text that is sorted as text."""
    return Cell(text, text.casefold(), href=href)


def number(text: str, value: float | None) -> Cell:
    """A number that is no accuracy."""
    return EMPTY if value is None else Cell(text, value)
