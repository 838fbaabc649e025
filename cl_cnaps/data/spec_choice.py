"""Which specification a source is converted by: one that is given, a published one, or one made up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.records import SPEC_FILE
from cl_cnaps.data.spec import DatasetSpec, read_spec
from cl_cnaps.data.spec_making import by_fractions
from cl_cnaps.errors import MissingDataError


def choose_spec(
    name: str,
    counts: Mapping[str, int],
    *,
    file: Path | None = None,
    folder: Path | None = None,
    fractions: tuple[float, float, float] | None = None,
    seed: int = 0,
) -> DatasetSpec:
    """The specification in `file`; else the source's own in a folder of them; else one by fractions.

    `counts` has the number of images of each class. The sets of which Meta-Dataset takes the test images
    (MNIST, CIFAR) have no published specification: without fractions all their classes are test classes.
    """
    if file is not None:
        return read_spec(file)
    published = _published(name, folder) if folder is not None else None
    if published is not None:
        return published
    known = known_set(name)
    if fractions is None and known is not None and known.record_split == "test":
        fractions = (0.0, 0.0, 1.0)
    if fractions is None:
        raise MissingDataError(
            f"there is no specification of {name}{f' in {folder}' if folder else ''}: give --spec FILE, "
            f"--specs FOLDER, or --fractions"
        )
    return by_fractions(name, counts, fractions, seed)


def _published(name: str, folder: Path) -> DatasetSpec | None:
    known = known_set(name)
    wanted = known.spec if known is not None and known.spec is not None else name
    for file in (folder / f"{wanted}_dataset_spec.json", folder / wanted / SPEC_FILE):
        if file.is_file():
            return read_spec(file)
    return None
