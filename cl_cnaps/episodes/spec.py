"""Which classes a data set has in each split, how many images they have, and how they are related."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path

from cl_cnaps.data import spec as files
from cl_cnaps.data.wordnet import ClassGraph
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class ClassTable:
    """Classes in a fixed order: name, id in the data set, number of images."""

    names: tuple[str, ...]
    ids: tuple[int, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.ids) == len(self.sizes):
            raise BadInputError(
                f"a class table has {len(self.names)} names, {len(self.ids)} ids and {len(self.sizes)} sizes"
            )
        # Plain ints, whatever counted them: an episode's generator is seeded by how a table is written.
        object.__setattr__(self, "ids", tuple(map(index, self.ids)))
        object.__setattr__(self, "sizes", tuple(map(index, self.sizes)))
        for what, values in (("name", self.names), ("id", self.ids)):
            if len(set(values)) != len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise BadInputError(f"two classes have the {what} {twice!r}")
        for name, size in zip(self.names, self.sizes, strict=True):
            if size < 0:
                raise BadInputError(f"class {name!r} has {size} images")

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> ClassTable:
        """A table from class name -> number of images; ids count in the mapping's order."""
        return cls(tuple(sizes), tuple(range(len(sizes))), tuple(sizes.values()))

    def __len__(self) -> int:
        return len(self.names)

    def restricted(self, sizes: Mapping[str, int]) -> ClassTable:
        """The classes to which `sizes` gives at least one image, in this table's order and with its ids."""
        kept = [k for k, name in enumerate(self.names) if sizes.get(name, 0) > 0]
        names = tuple(self.names[k] for k in kept)
        return ClassTable(names, tuple(self.ids[k] for k in kept), tuple(sizes[name] for name in names))


@dataclass(frozen=True)
class SplitSpec:
    """The classes of one split, with `groups` (Omniglot's alphabets) or a `graph` (ILSVRC) if related."""

    classes: ClassTable
    groups: Mapping[str, tuple[str, ...]] | None = None
    graph: ClassGraph | None = None

    def __post_init__(self) -> None:
        if self.groups is not None and self.graph is not None:
            raise BadInputError("a split has groups or a graph, not both")
        grouped = [name for group in (self.groups or {}).values() for name in group]
        if self.groups is not None and sorted(grouped) != sorted(self.classes.names):
            raise BadInputError("every class must be in exactly one group")
        if self.graph is not None and self.graph.leaves != tuple(sorted(self.classes.names)):
            raise BadInputError("the leaves of the graph and the classes of the split differ")

    def restricted(self, sizes: Mapping[str, int]) -> SplitSpec:
        """The split with only the classes that have images; groups without any go, the graph shrinks."""
        classes = self.classes.restricted(sizes)
        present = set(classes.names)
        groups = None
        if self.groups is not None:
            groups = {group: tuple(n for n in names if n in present) for group, names in self.groups.items()}
            groups = {group: names for group, names in groups.items() if names}
        return SplitSpec(classes, groups, None if self.graph is None else self.graph.restricted(present))


@dataclass(frozen=True)
class DatasetSpec:
    """A data set as episodes are drawn from it: its splits by name (TRAIN, VALID, TEST in Meta-Dataset)."""

    name: str
    splits: Mapping[str, SplitSpec]

    def __post_init__(self) -> None:
        if len({split.upper() for split in self.splits}) != len(self.splits):
            raise BadInputError(f"{self.name}: splits {list(self.splits)} differ only in case")

    def split(self, name: str) -> SplitSpec:
        """A split by its name, upper or lower case."""
        for known, split in self.splits.items():
            if known.upper() == name.upper():
                return split
        raise BadInputError(f"{self.name} has no split {name!r}; it has {', '.join(self.splits) or 'none'}")


def read_spec(file: Path) -> DatasetSpec:
    """The splits of a `dataset_spec.json`, with their alphabets or graphs; pools of a class count together."""
    spec = files.read_spec(file)
    return DatasetSpec(
        spec.name,
        {split: sampling_split(spec, split, spec.class_names, spec.images) for split in files.SPLITS},
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
