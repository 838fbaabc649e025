"""A record as a kind of experiment shows it: what the four kinds have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.records.record import Record, read_record, records_under
from cl_cnaps.report.table import Table

Row = dict[str, Any]


@dataclass(frozen=True)
class Headline:
    """A number that a record is made for."""

    of: str
    """Which of the record's numbers: a head, a data set and shape of tasks, ..."""
    mean: float
    """A fraction of 1."""
    ci95: float | None
    paper: Row | None
    """The paper's figure in per cent with its label, where it has one."""


@dataclass(frozen=True)
class View:
    """A record of one kind. A kind adds its tables, its headlines and its drawing."""

    record: Record

    verb: ClassVar[str]

    @property
    def path(self) -> Path:
        """The record's folder."""
        return self.record.path

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the record with the paper's figures; one line of `--json` each."""
        return list(self.record.summary["rows"])

    @property
    def missing(self) -> list[Row]:
        """Data sets that were not there."""
        return list(self.record.summary.get("missing", []))

    def to_reach(self, reach: float) -> Self:  # noqa: ARG002
        """Return the view with the labels needed for an accuracy; active learning has such."""
        return self

    @classmethod
    def compared(cls, views: Sequence[Self]) -> list[Self]:
        """Return the records of one command, where they are compared with the first one."""
        return list(views)

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """The tables of records side by side, as the command line prints them."""
        raise NotImplementedError

    @classmethod
    def draw(cls, views: Sequence[Self], folder: Path, formats: Sequence[str]) -> list[Path]:
        """Draw records together into a folder; nothing where a table says it better."""
        raise NotImplementedError

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:
        """The numbers that the record is made for; `trained_on` chooses among the paper's few-shot tables."""
        raise NotImplementedError

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the record of this kind in the folder `path`."""
        record = read_record(path)
        if record.summary.get("verb") != cls.verb:
            raise BadInputError(f"{path} is a record of {record.summary.get('verb')!r}, not of {cls.verb!r}")
        return cls(record)

    @classmethod
    def under(cls, paths: Iterable[Path]) -> list[Self]:
        """Read the records of this kind at or below `paths`, each once; those of other kinds are left out."""
        found: dict[Path, Self] = {}
        for path in paths:
            mine = [record for record in records_under(path) if record.summary.get("verb") == cls.verb]
            if not mine:
                raise MissingDataError(
                    f"{path} is no record of `cl-cnaps {cls.verb}` and holds none; the command makes one and names it"
                )
            for record in mine:
                found.setdefault(record.path.resolve(), cls(record))
        return list(found.values())
