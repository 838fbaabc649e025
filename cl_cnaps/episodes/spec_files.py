"""Reading Meta-Dataset's `dataset_spec.json` files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from cl_cnaps.episodes.hierarchy import ClassGraph
from cl_cnaps.episodes.spec import ClassTable, DatasetSpec, SplitSpec
from cl_cnaps.errors import BadInputError, MissingDataError

SPLITS = ("TRAIN", "VALID", "TEST")
"""The splits in the order in which a spec numbers its classes."""


def read_spec(path: Path, *, pool: str | None = None) -> DatasetSpec:
    """A `dataset_spec.json`: flat, in alphabets (bi-level) or with a WordNet graph (hierarchical).

    Some data sets divide the images of each class into pools (`{class}_train.tfrecords` and
    `{class}_test.tfrecords`); then `pool` says which one the sizes are of.
    """
    file = _SpecFile(path, _read_object(path), pool)
    kinds = {
        "DatasetSpecification": _flat_splits,
        "BiLevelDatasetSpecification": _grouped_splits,
        "HierarchicalDatasetSpecification": _graph_splits,
    }
    kind = file.text("__class__")
    if kind not in kinds:
        file.fail("__class__", f"is {kind!r}; known are {', '.join(kinds)}")
    name = file.text("name")
    try:
        return DatasetSpec(name, kinds[kind](file))
    except BadInputError as error:
        if str(path) in str(error):
            raise
        raise BadInputError(f"{path}: {error}") from None


def read_leaf_images(path: Path) -> dict[str, int]:
    """Number of images of each ILSVRC class, by WordNet id (`ilsvrc_2012_num_leaf_images.json`)."""
    content = _read_object(path)
    file = _SpecFile(path, content, None)
    return {leaf: file.count(leaf, value) for leaf, value in content.items()}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingDataError(f"{path}: there is no such file; a Meta-Dataset spec was expected") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInputError(f"{path}: not a JSON file ({error}); fetch or convert it again") from None
    if not isinstance(content, dict):
        raise BadInputError(f"{path}: holds a JSON {type(content).__name__}; an object is needed")
    return content


@dataclass(frozen=True)
class _SpecFile:
    """The keys of one file, checked as they are asked for, so that an error names the file and the key."""

    path: Path
    content: Mapping[str, Any]
    pool: str | None

    def fail(self, key: str, problem: str) -> NoReturn:
        raise BadInputError(f"{self.path}: {key!r} {problem}")

    def text(self, key: str) -> str:
        value = self.content.get(key)
        return (
            value if isinstance(value, str) and value else self.fail(key, f"is {value!r}; a text is needed")
        )

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.content.get(key)
        return value if isinstance(value, dict) else self.fail(key, "is missing or not an object")

    def count(self, key: str, value: object) -> int:
        # bool is an int to Python, but `true` is no number of images.
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.fail(key, f"is {value!r}; a whole number of at least 0 is needed")
        return value

    def images(self, key: str, value: object) -> int:
        """A class's number of images, of the chosen pool if it is divided into pools."""
        if isinstance(value, dict):
            if self.pool is None:
                self.fail(key, f"is divided into pools {sorted(value)}; say which one")
            if self.pool not in value:
                self.fail(key, f"has pools {sorted(value)}, not {self.pool!r}")
            value = value[self.pool]
        elif self.pool is not None:
            self.fail(key, f"is not divided into pools, but pool {self.pool!r} was asked for")
        return self.count(key, value)

    def per_split(self, key: str) -> dict[str, int]:
        values = self.mapping(key)
        for split in SPLITS:
            if split not in values:
                self.fail(key, f"lacks the split {split}")
        return {split: self.count(f"{key}.{split}", values[split]) for split in SPLITS}

    def numbered(self, key: str, expected: int) -> list[Any]:
        """An object with keys "0".."expected - 1" as a list."""
        values = self.mapping(key)
        wanted = [str(number) for number in range(expected)]
        missing = [number for number in wanted if number not in values]
        if missing:
            self.fail(key, f"lacks {len(missing)} of the ids 0..{expected - 1}, the first: {missing[0]}")
        if len(values) != expected:
            self.fail(key, f"has {len(values)} entries; the splits have {expected}")
        return [values[number] for number in wanted]

    def names(self, key: str, expected: int) -> list[str]:
        values = self.numbered(key, expected)
        for number, value in enumerate(values):
            if not isinstance(value, str) or not value:
                self.fail(f"{key}.{number}", f"is {value!r}; a name is needed")
        return values

    def classes(self, expected: int) -> ClassTable:
        """All classes of a spec that numbers them: `class_names` and `images_per_class`."""
        sizes = self.numbered("images_per_class", expected)
        return ClassTable(
            tuple(self.names("class_names", expected)),
            tuple(range(expected)),
            tuple(self.images(f"images_per_class.{number}", value) for number, value in enumerate(sizes)),
        )


def _part(classes: ClassTable, start: int, stop: int) -> ClassTable:
    return ClassTable(classes.names[start:stop], classes.ids[start:stop], classes.sizes[start:stop])


def _ranges(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive ranges of the given lengths: ids count split after split, alphabet after alphabet."""
    ends = list(accumulate(counts))
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []


def _flat_splits(file: _SpecFile) -> dict[str, SplitSpec]:
    counts = file.per_split("classes_per_split")
    classes = file.classes(sum(counts.values()))
    ranges = _ranges(list(counts.values()))
    return {split: SplitSpec(_part(classes, *ids)) for split, ids in zip(counts, ranges, strict=True)}


def _grouped_splits(file: _SpecFile) -> dict[str, SplitSpec]:
    counts = file.per_split("superclasses_per_split")
    total = sum(counts.values())
    group_names = file.names("superclass_names", total)
    group_sizes = [
        file.count(f"classes_per_superclass.{number}", value)
        for number, value in enumerate(file.numbered("classes_per_superclass", total))
    ]
    if len(set(group_names)) != total:
        file.fail("superclass_names", "has a name twice")
    classes = file.classes(sum(group_sizes))
    group_ranges = _ranges(group_sizes)
    splits: dict[str, SplitSpec] = {}
    for split, (first, last) in zip(counts, _ranges(list(counts.values())), strict=True):
        groups = {group_names[g]: classes.names[slice(*group_ranges[g])] for g in range(first, last)}
        start = group_ranges[first][0] if first < last else 0
        stop = group_ranges[last - 1][1] if first < last else 0
        splits[split] = SplitSpec(_part(classes, start, stop), groups=groups)
    return splits


def _graph_splits(file: _SpecFile) -> dict[str, SplitSpec]:
    subgraphs, sizes = file.mapping("split_subgraphs"), file.mapping("images_per_class")
    names = file.names("class_names", len(file.mapping("class_names")))
    ids = {name: number for number, name in enumerate(names)}
    splits: dict[str, SplitSpec] = {}
    for split in SPLITS:
        graph = _graph(file, f"split_subgraphs.{split}", subgraphs.get(split))
        of_split = sizes.get(split)
        if not isinstance(of_split, dict):
            file.fail(f"images_per_class.{split}", "is missing or not an object")
        for leaf in graph.leaves:
            if leaf not in ids:
                file.fail("class_names", f"lacks {leaf!r}, a leaf of {split}")
        leaves = sorted(graph.leaves, key=ids.__getitem__)
        splits[split] = SplitSpec(
            ClassTable(
                tuple(leaves),
                tuple(ids[leaf] for leaf in leaves),
                tuple(file.images(f"images_per_class.{split}.{leaf}", of_split.get(leaf)) for leaf in leaves),
            ),
            graph=graph,
        )
    return splits


def _graph(file: _SpecFile, key: str, nodes: object) -> ClassGraph:
    if not isinstance(nodes, list):
        file.fail(key, "is missing or not a list of nodes")
    children: dict[str, tuple[str, ...]] = {}
    parents: dict[str, set[str]] = {}
    for position, node in enumerate(nodes):
        where = f"{key}[{position}]"
        if not isinstance(node, dict) or not isinstance(node.get("wn_id"), str):
            file.fail(where, "is not a node with a 'wn_id'")
        for relation in ("children_ids", "parents_ids"):
            related = node.get(relation)
            if not isinstance(related, list) or not all(isinstance(other, str) for other in related):
                file.fail(f"{where}.{relation}", "is missing or not a list of ids")
        if node["wn_id"] in children:
            file.fail(where, f"repeats the node {node['wn_id']!r}")
        children[node["wn_id"]] = tuple(node["children_ids"])
        parents[node["wn_id"]] = set(node["parents_ids"])
    down = {(node, child) for node, below in children.items() for child in below}
    up = {(parent, node) for node, above in parents.items() for parent in above}
    if down != up:
        parent, child = min(down ^ up)
        file.fail(key, f"has an edge {parent} -> {child} that only one of the two nodes names")
    try:
        return ClassGraph(children)
    except BadInputError as error:
        file.fail(key, f"is no hierarchy: {error}")
