"""Charts of records of any verb that has some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.results.plots.drawing import FORMATS, draw_streams
from cl_cnaps.results.record import records_under
from cl_cnaps.results.streams import stream_records

Draw = Callable[[Sequence[Path], Path, Sequence[str]], list[Path]]
"""Draws the records in these folders together, into a folder, in these formats."""


def _stream(paths: Sequence[Path], folder: Path, formats: Sequence[str]) -> list[Path]:
    return draw_streams(stream_records(paths), folder, formats=formats)


# The records of other verbs are read by modules that load PyTorch, which streams can do without.
def _evaluate(paths: Sequence[Path], folder: Path, formats: Sequence[str]) -> list[Path]:
    from cl_cnaps.results.few_shot import few_shot_records
    from cl_cnaps.results.plots.few_shot import draw_few_shot

    return draw_few_shot(few_shot_records(paths), folder, formats=formats)


def _active(paths: Sequence[Path], folder: Path, formats: Sequence[str]) -> list[Path]:
    from cl_cnaps.results.active import active_records
    from cl_cnaps.results.plots.active import draw_active

    return draw_active(active_records(paths), folder, formats=formats)


def _ablate(paths: Sequence[Path], folder: Path, formats: Sequence[str]) -> list[Path]:
    from cl_cnaps.results.ablation import read_ablation_record
    from cl_cnaps.results.plots.ablation import draw_ablations

    return draw_ablations([read_ablation_record(path) for path in paths], folder, formats=formats)


VERBS: Mapping[str, Draw] = {
    "stream": _stream,
    "evaluate": _evaluate,
    "active": _active,
    "ablate": _ablate,
}


def draw_records(
    paths: Iterable[Path], out: Path | None = None, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw the records at or below `paths`, those of one verb together; verbs without charts are passed over.

    Figures go to `out`; without it, those of a verb with one record into that record's `figures/` and others into
    `figures/` here. Verbs that share such a folder have one each in it.
    """
    found = _by_verb(paths)
    drawn = []
    for verb, records in found.items():
        shared = out or Path("figures")
        folder = shared / verb if len(found) > 1 else shared
        if out is None and len(records) == 1:
            folder = records[0] / "figures"
        drawn += VERBS[verb](records, folder, formats)
    if not drawn:
        raise BadInputError(
            "there is nothing to draw: of ablations, refinement, shots and queries have charts, the others tables"
        )
    return drawn


def _by_verb(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """The folders of records, each once, in the order of `VERBS`."""
    found: dict[str, dict[Path, Path]] = {verb: {} for verb in VERBS}
    for path in paths:
        mine = [record for record in records_under(path) if record.summary.get("verb") in VERBS]
        if not mine:
            raise MissingDataError(
                f"{path} is no record of {', '.join(VERBS)} and holds none; these commands make one and name it"
            )
        for record in mine:
            found[record.summary["verb"]].setdefault(record.path.resolve(), record.path)
    return {verb: list(folders.values()) for verb, folders in found.items() if folders}
