"""A record as its kind of experiment shows it: what the four kinds have in common, and loops over them."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.records.record import Record, record_name, records_under
from cl_cnaps.report.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
KINDS: Mapping[str, str] = {
    "stream": "stream:StreamView",
    "evaluate": "few_shot:FewShotView",
    "active": "active:ActiveView",
    "ablate": "ablation:AblationView",
}
"""Verb -> module and class, loaded when it is first used."""
FORMATS = ("png", "svg")


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

    @property
    def name(self) -> str:
        """What it is called among records of one run."""
        return str(self.record.config.get("model"))

    @property
    def href(self) -> str:
        """The record's page in the report's site."""
        return record_link(self.record)

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
    def compared(cls, views: Sequence[Self], metrics: Sequence[str] = ()) -> list[Self]:  # noqa: ARG003
        """Return the records of one command: those of streams are compared, and have a choice of columns."""
        return list(views)

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """The tables of records side by side, as the command line prints them."""
        raise NotImplementedError

    @classmethod
    def figures(cls, views: Sequence[Self]) -> Iterator[tuple[str, Figure]]:
        """Yield the figures of records that are drawn together, with their names; none where a table is better."""
        raise NotImplementedError

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:
        """The numbers that the record is made for; `trained_on` chooses among the paper's few-shot tables."""
        raise NotImplementedError

    @classmethod
    def under(cls, paths: Iterable[Path]) -> list[Self]:
        """Read the records of this kind at or below `paths`, each once; those of other kinds are left out."""
        found = _by_verb(paths, [cls.verb])
        return [cls(view.record) for view in found.get(cls.verb, [])]


def view_of(record: Record) -> View:
    """Return a record as its kind shows it."""
    module, _, name = KINDS[record.summary["verb"]].partition(":")
    kind: type[View] = getattr(importlib.import_module(f"cl_cnaps.report.{module}"), name)
    return kind(record)


def draw(views: Sequence[View], folder: Path | None = None, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw records of one kind: a lone one into its own `figures/`, several beside the first, or into `folder`."""
    from cl_cnaps.report.plots import style

    first = views[0]
    if folder is None:
        beside = first.path.parent / f"{first.path.name}-and-{len(views) - 1}-more"
        folder = first.path / "figures" if len(views) == 1 else beside
    kind: Any = type(first)
    return style.draw(kind.figures(views), folder, formats)


def draw_records(
    paths: Iterable[Path], out: Path | None = None, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw the records at or below `paths`, those of one verb together; verbs without charts are left out.

    Figures go to `out`; without it, those of a verb with one record into that record's `figures/` and others into
    `figures/` here. Verbs that share such a folder have one each in it.
    """
    found = _by_verb(paths)
    drawn = []
    for verb, views in found.items():
        shared = out or Path("figures")
        folder = shared / verb if len(found) > 1 else shared
        if out is None and len(views) == 1:
            folder = views[0].path / "figures"
        drawn += draw(views, folder, formats)
    if not drawn:
        raise BadInputError(
            "there is nothing to draw: of ablations, adaptation, refinement, shots and queries have charts, "
            "the others tables"
        )
    return drawn


def _by_verb(paths: Iterable[Path], verbs: Collection[str] = KINDS) -> dict[str, list[View]]:
    """The records of these verbs, each once, in the order of `KINDS`; every path must hold some."""
    found: dict[str, dict[Path, View]] = {verb: {} for verb in verbs}
    for path in paths:
        mine = [record for record in records_under(path) if record.summary.get("verb") in verbs]
        if not mine:
            commands = f"`cl-cnaps {', '.join(verbs)}`"
            raise MissingDataError(
                f"{path} is no record of {commands} and holds none; it makes one and names it"
            )
        for record in mine:
            found[record.summary["verb"]].setdefault(record.path.resolve(), view_of(record))
    return {verb: list(views.values()) for verb, views in found.items() if views}


def verb_of(record: Record) -> str:
    """Return the command that made a record, as its summary has it."""
    return str(record.summary.get("verb", record.verb))


def page_name(record: Record) -> str:
    """Return the file name, without ending, of a record's page: safe whatever the record's folder is called."""
    name = str(record.summary.get("name", record.name))
    return f"{record_name(verb_of(record))}-{record_name(name)}-{record.digest[:12]}"


def record_link(record: Record) -> str:
    """Return where a record's page is, seen from the front page of the report's site."""
    return f"records/{page_name(record)}.html"
