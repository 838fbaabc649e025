"""What is there: one row for every published set and everything registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cl_cnaps.data.catalog import CATALOG
from cl_cnaps.data.finding import open_source
from cl_cnaps.data.openers import OPENERS
from cl_cnaps.data.registered import registered
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.errors import ClCnapsError, MissingDataError


@dataclass(frozen=True)
class Row:
    """One source, there or not."""

    name: str
    origin: str = ""
    splits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Split -> number of classes and of images."""

    complete: bool | None = None
    published: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The same as published, where the splits found are the published ones."""

    problem: str = ""
    """Why it cannot be read, although it is there."""

    @property
    def found(self) -> bool:
        """Whether it can be used."""
        return bool(self.splits)

    @property
    def place(self) -> str:
        """Where it is, without how much of it."""
        return self.origin.partition(": ")[0].removesuffix(" in the data root")

    @classmethod
    def of(cls, source: CountedSource) -> Row:
        """The row of a source that was opened."""
        splits = {split: (len(source.classes(split)), total(source, split)) for split in source.splits}
        known = CATALOG.get(source.name)
        published = known.official if known is not None and set(known.official) == set(splits) else {}
        return cls(source.name, source.origin, splits, source.complete, published)

    def as_json(self) -> dict[str, object]:
        """One object for `--json`."""
        splits = {split: {"classes": c, "images": n} for split, (c, n) in self.splits.items()}
        return {
            "name": self.name,
            "found": self.found,
            "complete": self.complete,
            "origin": self.origin,
            "splits": splits,
            "problem": self.problem,
        }


def listing(root: Path) -> list[Row]:
    """Every published set, then everything registered, in the data root."""
    return [_row(name, root) for name in (*CATALOG, *sorted({*registered(root), *OPENERS}))]


def _row(name: str, root: Path) -> Row:
    try:
        return Row.of(open_source(name, root=root, features=True))
    except MissingDataError as error:
        return Row(name, problem=str(error) if name not in CATALOG else "")
    except ClCnapsError as error:
        return Row(name, problem=str(error))
