"""The four kinds of records by verb: what the command line, sweeps, plots and the site loop over."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.records.record import Record, records_under
from cl_cnaps.report.view import View

KINDS: Mapping[str, str] = {
    "stream": "stream:StreamView",
    "evaluate": "few_shot:FewShotView",
    "active": "active:ActiveView",
    "ablate": "ablation:AblationView",
}
"""Verb -> module and class, loaded when it is first used."""
FORMATS = ("png", "svg")


def view_of(record: Record) -> View:
    """Return a record as its kind shows it."""
    module, _, name = KINDS[record.summary["verb"]].partition(":")
    kind: type[View] = getattr(importlib.import_module(f"cl_cnaps.report.{module}"), name)
    return kind(record)


def draw(views: Sequence[View], folder: Path | None = None, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw records of one kind: a lone one into its own `figures/`, several beside the first, or into `folder`."""
    for extension in formats:
        if extension not in FORMATS:
            raise BadInputError(f"unknown format {extension!r}; known: {', '.join(FORMATS)}")
    first = views[0]
    if folder is None:
        beside = first.path.parent / f"{first.path.name}-and-{len(views) - 1}-more"
        folder = first.path / "figures" if len(views) == 1 else beside
    kind: Any = type(first)
    drawn: list[Path] = kind.draw(views, folder, formats)
    return drawn


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


def _by_verb(paths: Iterable[Path]) -> dict[str, list[View]]:
    """The records, each once, in the order of `KINDS`."""
    found: dict[str, dict[Path, View]] = {verb: {} for verb in KINDS}
    for path in paths:
        mine = [record for record in records_under(path) if record.summary.get("verb") in KINDS]
        if not mine:
            raise MissingDataError(
                f"{path} is no record of {', '.join(KINDS)} and holds none; these commands make one and name it"
            )
        for record in mine:
            found[record.summary["verb"]].setdefault(record.path.resolve(), view_of(record))
    return {verb: list(views.values()) for verb, views in found.items() if views}
