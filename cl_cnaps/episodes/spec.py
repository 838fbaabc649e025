"""Which classes a data set has in each split, how many images they have, and how they are related."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from operator import index
from pathlib import Path

from cl_cnaps.data import spec as files
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class ClassGraph:
    """A directed acyclic graph of concepts and classes: every node with its children; classes are leaves.

    A node may have several parents, so a leaf may be reached in several ways; it is spanned once.
    """

    children: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        for node, children in self.children.items():
            for child in children:
                if child not in self.children:
                    raise BadInputError(f"node {node!r} has a child {child!r} that is not in the graph")
            if len(set(children)) != len(children):
                raise BadInputError(f"node {node!r} names a child twice")
        try:
            self._children_first  # noqa: B018  (a cycle is found now, not at the first episode)
        except CycleError as error:
            raise BadInputError(f"the graph has a cycle: {' -> '.join(error.args[1])}") from None

    @cached_property
    def _children_first(self) -> tuple[str, ...]:
        return tuple(TopologicalSorter(self.children).static_order())

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The classes, sorted."""
        return tuple(sorted(node for node, children in self.children.items() if not children))

    @cached_property
    def spans(self) -> Mapping[str, tuple[str, ...]]:
        """The leaves below each internal node, sorted; nodes too, so that a draw by position is stable."""
        reached: dict[str, frozenset[str]] = {}
        for node in self._children_first:
            below = self.children[node]
            reached[node] = (
                frozenset().union(*(reached[child] for child in below)) if below else frozenset([node])
            )
        return {node: tuple(sorted(reached[node])) for node in sorted(reached) if self.children[node]}

    def eligible(self, min_leaves: int, max_leaves: int) -> Mapping[str, tuple[str, ...]]:
        """The internal nodes that span between `min_leaves` and `max_leaves` leaves, with those leaves."""
        return {node: span for node, span in self.spans.items() if min_leaves <= len(span) <= max_leaves}

    def restricted(self, leaves: Collection[str]) -> ClassGraph:
        """The graph over some of the leaves, built as the benchmark builds its own from the classes it has.

        Nodes that reach none of the leaves go. A node left with one child is replaced by that child in all
        its parents: it would stand for the same classes and make them twice as likely to be picked.
        """
        unknown = sorted(set(leaves) - set(self.leaves))
        if unknown:
            raise BadInputError(
                f"{len(unknown)} classes are not leaves of the graph, the first: {unknown[0]!r}"
            )
        kept: dict[str, tuple[str, ...]] = {leaf: () for leaf in self.leaves if leaf in set(leaves)}
        stands_for: dict[str, str] = {leaf: leaf for leaf in kept}
        for node in self._children_first:
            # dict.fromkeys: children that shrank to the same node count once.
            below = tuple(dict.fromkeys(stands_for[c] for c in self.children[node] if c in stands_for))
            if len(below) == 1:
                stands_for[node] = below[0]
            elif below:
                stands_for[node] = node
                kept[node] = below
        return ClassGraph(kept)


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

    @classmethod
    def of_tables(cls, name: str, tables: Mapping[str, Mapping[str, int]]) -> DatasetSpec:
        """A data set without structure, from split -> class name -> number of images.

        MNIST, CIFAR-10 and CIFAR-100 join Meta-Dataset's test sets so: one split TEST with all their classes.
        """
        return cls(name, {split: SplitSpec(ClassTable.of(sizes)) for split, sizes in tables.items()})

    def split(self, name: str) -> SplitSpec:
        """A split by its name, upper or lower case."""
        for known, split in self.splits.items():
            if known.upper() == name.upper():
                return split
        raise BadInputError(f"{self.name} has no split {name!r}; it has {', '.join(self.splits) or 'none'}")

    def restricted(self, sizes: Mapping[str, int]) -> DatasetSpec:
        """The data set with only the classes that really have images, and with as many as they have.

        A class that is not named, or has no image, is left out of its split; hierarchies shrink to what is
        left. A name that no split has is an error.
        """
        known = {name for split in self.splits.values() for name in split.classes.names}
        unknown = [name for name in sizes if name not in known]
        if unknown:
            raise BadInputError(
                f"{self.name} has no class {unknown[0]!r} ({len(unknown)} of {len(sizes)} unknown)"
            )
        return DatasetSpec(self.name, {name: split.restricted(sizes) for name, split in self.splits.items()})


def read_spec(file: Path, *, pool: str | None = None) -> DatasetSpec:
    """The splits of a `dataset_spec.json`, with their alphabets or graphs.

    Some data sets divide the images of each class into pools (`{class}_train.tfrecords` and
    `{class}_test.tfrecords`); then `pool` says which one the sizes are of.
    """
    spec = files.read_spec(file)

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
