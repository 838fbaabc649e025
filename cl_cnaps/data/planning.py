"""How a source is to be converted: by which specification, from which of its splits, into which folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.conversion import images_by_class, record_splits
from cl_cnaps.data.records import SPEC_FILE, RecordSource
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.spec import DatasetSpec
from cl_cnaps.data.spec_files import read_spec
from cl_cnaps.data.spec_making import by_fractions
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.untrusted import below


@dataclass(frozen=True)
class Plan:
    """One conversion to be done."""

    source: CountedSource
    spec: DatasetSpec
    folder: Path
    splits: tuple[str, ...]
    """Splits of the source whose images are taken."""

    invert: bool
    images: int
    """Images in those splits."""


def plan_conversions(
    sources: Iterable[CountedSource],
    out: Path,
    *,
    spec_file: Path | None = None,
    specs: Path | None = None,
    fractions: tuple[float, float, float] | None = None,
    seed: int = 0,
) -> list[Plan]:
    """Plan all before any is written, so that what is missing is said at once; see `plan_conversion`."""
    plans: dict[Path, Plan] = {}
    for source in sources:
        plan = plan_conversion(source, out, spec_file=spec_file, specs=specs, fractions=fractions, seed=seed)
        if plan.folder in plans:
            raise BadInputError(
                f"{plans[plan.folder].source.name} and {source.name} would both be written to {plan.folder}; "
                f"convert them apart, each with its own --out"
            )
        plans[plan.folder] = plan
    return list(plans.values())


def plan_conversion(
    source: CountedSource,
    out: Path,
    *,
    spec_file: Path | None = None,
    specs: Path | None = None,
    fractions: tuple[float, float, float] | None = None,
    seed: int = 0,
) -> Plan:
    """Decide how `source` becomes a folder in `out` that is called like its specification.

    That is `spec_file`; else the source's own in the folder `specs`; else one by `fractions` and `seed`. The
    sets of which Meta-Dataset takes the test images (MNIST, CIFAR) have no published specification: without
    fractions all their classes are test classes.
    """
    if isinstance(source, RecordSource):
        raise BadInputError(f"{source.path} holds records already")
    splits = record_splits(source)
    pieces = images_by_class(source, splits)
    counts = {name: sum(count for _, count in parts) for name, parts in pieces.items()}
    spec = read_spec(spec_file) if spec_file is not None else None
    if spec is None and specs is not None:
        spec = _published(source.name, specs)
    if spec is None:
        spec = _dealt_out(source.name, counts, specs, fractions, seed)
    folder = below(out, spec.name)
    if folder.exists():
        raise BadInputError(f"{folder} exists; records are only written to a new folder")
    known = known_set(source.name)
    invert = known is not None and known.inverted_in_records
    return Plan(source, spec, folder, splits, invert, sum(counts.values()))


def _published(name: str, specs: Path) -> DatasetSpec | None:
    known = known_set(name)
    wanted = known.spec if known is not None and known.spec is not None else name
    for file in (specs / f"{wanted}_dataset_spec.json", specs / wanted / SPEC_FILE):
        if file.is_file():
            return read_spec(file)
    return None


def _dealt_out(
    name: str,
    counts: Mapping[str, int],
    specs: Path | None,
    fractions: tuple[float, float, float] | None,
    seed: int,
) -> DatasetSpec:
    known = known_set(name)
    if fractions is None and known is not None and known.record_split == "test":
        fractions = (0.0, 0.0, 1.0)
    if fractions is None:
        raise MissingDataError(
            f"there is no specification of {name}{f' in {specs}' if specs else ''}: give --spec FILE, "
            f"--specs FOLDER, or --fractions"
        )
    return by_fractions(name, counts, fractions, seed)
