"""A Meta-Dataset specification as tasks are drawn from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cl_cnaps.data import spec as files
from cl_cnaps.data import spec_files
from cl_cnaps.episodes.hierarchy import ClassGraph
from cl_cnaps.episodes.spec import ClassTable, DatasetSpec, SplitSpec
from cl_cnaps.errors import BadInputError


def read_spec(file: Path, *, pool: str | None = None) -> DatasetSpec:
    """The splits of a `dataset_spec.json`, with their alphabets or graphs.

    Some data sets divide the images of each class into pools (`{class}_train.tfrecords` and
    `{class}_test.tfrecords`); then `pool` says which one the sizes are of.
    """
    spec = spec_files.read_spec(file)

    def size(class_id: int) -> int:
        images, label = spec.images_per_class[class_id], spec.class_names[class_id]
        if isinstance(images, int):
            if pool is None:
                return images
            raise BadInputError(
                f"{file}: the images of {label!r} are not divided into pools, but {pool!r} was asked for"
            )
        if pool is None or pool not in images:
            asked = "say which one" if pool is None else f"there is no {pool!r}"
            raise BadInputError(f"{file}: the images of {label!r} are in pools {sorted(images)}; {asked}")
        return images[pool]

    return DatasetSpec(
        spec.name, {split: sampling_split(spec, split, spec.class_names, size) for split in files.SPLITS}
    )


def sampling_split(
    spec: files.DatasetSpec, split: str, names: tuple[str, ...], size: Callable[[int], int]
) -> SplitSpec:
    """One split of a specification: its classes by these names, of these sizes, and how they are related.

    Args:
        spec: the specification.
        split: TRAIN, VALID or TEST.
        names: what episodes call the classes, by class id.
        size: class id -> number of images.
    """
    ids = spec.classes[split]
    table = ClassTable(tuple(names[i] for i in ids), tuple(ids), tuple(size(i) for i in ids))
    if spec.superclasses is not None:
        groups = {group.name: tuple(names[i] for i in group.classes) for group in spec.superclasses[split]}
        return SplitSpec(table, groups=groups)
    if spec.graphs is not None:
        return SplitSpec(table, graph=ClassGraph({node.wn_id: node.children for node in spec.graphs[split]}))
    return SplitSpec(table)
