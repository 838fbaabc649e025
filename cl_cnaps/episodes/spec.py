"""Which classes a data set has in each split, how many images they have, and how they are related."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index

from cl_cnaps.data.spec import DatasetSpec
from cl_cnaps.data.wordnet import ClassGraph
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class ClassTable:
    """Classes in a fixed order: name and number of images."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes):
            raise BadInputError(f"a class table has {len(self.names)} names and {len(self.sizes)} sizes")
        # Plain ints, whatever counted them: an episode's generator is seeded by how a table is written.
        object.__setattr__(self, "sizes", tuple(map(index, self.sizes)))
        if len(set(self.names)) != len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise BadInputError(f"two classes have the name {twice!r}")
        for name, size in zip(self.names, self.sizes, strict=True):
            if size < 0:
                raise BadInputError(f"class {name!r} has {size} images")

    @classmethod
    def of(cls, sizes: Mapping[str, int]) -> ClassTable:
        """A table from class name -> number of images, in the mapping's order."""
        return cls(tuple(sizes), tuple(sizes.values()))

    def __len__(self) -> int:
        return len(self.names)

    def restricted(self, sizes: Mapping[str, int]) -> ClassTable:
        """The classes to which `sizes` gives at least one image, in this table's order."""
        return ClassTable.of({name: sizes[name] for name in self.names if sizes.get(name, 0) > 0})


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


def sampling_split(spec: DatasetSpec, split: str, names: tuple[str, ...]) -> SplitSpec:
    """One split of a specification: its classes, how many images they have (pools together), how they are related.

    Args:
        spec: the specification.
        split: TRAIN, VALID or TEST, in upper or lower case.
        names: what episodes call the classes, by class id.
    """
    known = split.upper()
    if known not in spec.classes:
        raise BadInputError(f"{spec.name} has no split {split!r}; it has {', '.join(spec.classes)}")
    ids = spec.classes[known]
    table = ClassTable(tuple(names[i] for i in ids), tuple(spec.images(i) for i in ids))
    if spec.superclasses is not None:
        groups = {group.name: tuple(names[i] for i in group.classes) for group in spec.superclasses[known]}
        return SplitSpec(table, groups=groups)
    if spec.graphs is not None:
        return SplitSpec(table, graph=ClassGraph({node.wn_id: node.children for node in spec.graphs[known]}))
    return SplitSpec(table)
