"""Which records a report is of: found below some folders, each once, and what of them could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from cl_cnaps.errors import ClCnapsError, MissingDataError
from cl_cnaps.records.record import Record, read_record, record_folders
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.active import ActiveView
from cl_cnaps.report.few_shot import FewShotView
from cl_cnaps.report.site.coverage import Experiment, coverage
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.view import KINDS, View, page_name, verb_of

ViewT = TypeVar("ViewT", bound=View)

NOT_ITS_FORM = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What comes of a value that is missing, of another type or too large."""


@dataclass(frozen=True)
class Page:
    """One file of the site."""

    path: str
    """Where it is, seen from the site's folder."""
    title: str
    template: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Unreadable:
    """A folder that looks like a record, and why its numbers are in no table."""

    path: Path
    reason: str


@dataclass
class Gathered:
    """The records of a report, by the command that made them."""

    records: dict[str, Record] = field(default_factory=dict)
    """Page name -> record; all of them, of verbs without a section of their own too."""
    unreadable: list[Unreadable] = field(default_factory=list)
    again: list[Record] = field(default_factory=list)
    """Records with the page name of an earlier one, which stand in for it if it cannot be shown."""
    rendered: dict[str, str] = field(default_factory=dict)
    """The pages by their paths, where they were made while it was seen whether they can be."""

    @cached_property
    def streams(self) -> list[StreamView]:
        """The records of `cl-cnaps stream`."""
        return self._views("stream", StreamView)

    @cached_property
    def few_shot(self) -> list[FewShotView]:
        """The records of `cl-cnaps evaluate`."""
        return self._views("evaluate", FewShotView)

    @cached_property
    def active(self) -> list[ActiveView]:
        """The records of `cl-cnaps active`."""
        return self._views("active", ActiveView)

    @cached_property
    def ablations(self) -> list[AblationView]:
        """The records of `cl-cnaps ablate`."""
        return self._views("ablate", AblationView)

    @cached_property
    def experiments(self) -> list[Experiment]:
        """The paper's experiments, and which of them these records are."""
        return coverage(self)

    def _views(self, verb: str, kind: type[ViewT]) -> list[ViewT]:
        return [kind(record) for record in self.records.values() if verb_of(record) == verb]


def gather(paths: Iterable[Path]) -> Gathered:
    """Read every record at or below `paths`.

    Of two records of one verb, name and configuration the one found first stays. A record that is damaged, or
    of a form not known here, does not hold up the others: it is listed with the reason.
    """
    found = Gathered()
    for path in paths:
        folders = list(record_folders(path))
        if not folders:
            raise MissingDataError(
                f"{path} is no run record and holds none; `cl-cnaps stream` makes one and names it"
            )
        for folder in folders:
            _add(found, folder)
    return found


def form_unknown(error: Exception) -> str:
    """The reason why a record is in no table whose values are not of the form expected."""
    return f"its form is not known to this version ({type(error).__name__}: {error})"


def _add(found: Gathered, folder: Path) -> None:
    try:
        record = read_record(folder)
        name = page_name(record)
        if verb_of(record) in KINDS and not isinstance(record.summary.get("rows"), list):
            raise ValueError("summary.json has no rows")
        if found.records.setdefault(name, record) is not record:
            found.again.append(record)
    except ClCnapsError as error:
        found.unreadable.append(Unreadable(folder, str(error)))
    except NOT_ITS_FORM as error:
        found.unreadable.append(Unreadable(folder, form_unknown(error)))
