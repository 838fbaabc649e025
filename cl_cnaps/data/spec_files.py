"""Reading Meta-Dataset's `dataset_spec.json`, each key checked, so that an error names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from cl_cnaps.data.spec import PATTERNS, SPLITS, DatasetSpec, Images, Superclass
from cl_cnaps.data.wordnet import Graph, Synset, leaves, spanned
from cl_cnaps.errors import BadInputError, foreign
from cl_cnaps.untrusted import read_json


def read_spec(file: Path) -> DatasetSpec:
    """A `dataset_spec.json`: flat, in alphabets (bi-level) or with a WordNet graph (hierarchical)."""
    content = _read_object(file)
    try:
        with foreign("what it holds", "is no specification"):
            return parse_spec(content)
    except BadInputError as error:
        raise BadInputError(f"{file}: {error}") from None


def parse_spec(document: Mapping[str, Any]) -> DatasetSpec:
    """A specification from the content of a dataset_spec.json."""
    keys = _Keys(document)
    kinds = {
        "DatasetSpecification": _flat,
        "BiLevelDatasetSpecification": _grouped,
        "HierarchicalDatasetSpecification": _hierarchical,
    }
    kind = keys.text("__class__")
    if kind not in kinds:
        keys.fail("__class__", f"is {kind!r}; known are {', '.join(kinds)}")
    pattern = keys.text("file_pattern")
    if pattern not in PATTERNS:
        keys.fail("file_pattern", f"is {pattern!r}; known are {', '.join(PATTERNS)}")
    spec = kinds[kind](keys, keys.text("name"), pattern)
    if len(set(spec.class_names)) != len(spec.class_names):
        twice = next(name for name in spec.class_names if spec.class_names.count(name) > 1)
        keys.fail("class_names", f"has the name {twice!r} twice")
    return spec


def read_leaf_images(file: Path) -> dict[str, int]:
    """Number of images of each ILSVRC class, by WordNet id (`ilsvrc_2012_num_leaf_images.json`)."""
    content = _read_object(file)
    try:
        return {leaf: _Keys(content).count(leaf, value) for leaf, value in content.items()}
    except BadInputError as error:
        raise BadInputError(f"{file}: {error}") from None


def _read_object(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise BadInputError(f"{file}: holds a JSON {type(content).__name__}; an object is needed")
    return content


@dataclass(frozen=True)
class _Keys:
    """The keys of one file, checked as they are asked for."""

    content: Mapping[str, Any]

    def fail(self, key: str, problem: str) -> NoReturn:
        raise BadInputError(f"{key!r} {problem}")

    def text(self, key: str) -> str:
        value = self.content.get(key)
        if not isinstance(value, str) or not value:
            self.fail(key, f"is {value!r}; a text is needed")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.content.get(key)
        return value if isinstance(value, dict) else self.fail(key, "is missing or not an object")

    def count(self, key: str, value: object) -> int:
        # bool is an int to Python, but `true` is no number of images.
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.fail(key, f"is {value!r}; a whole number of at least 0 is needed")
        return value

    def images(self, key: str, value: object) -> Images:
        """A class's number of images, or the numbers of its pools."""
        if isinstance(value, dict):
            return {pool: self.count(f"{key}.{pool}", count) for pool, count in value.items()}
        return self.count(key, value)

    def per_split(self, key: str) -> list[int]:
        values = self.mapping(key)
        for split in SPLITS:
            if split not in values:
                self.fail(key, f"lacks the split {split}")
        return [self.count(f"{key}.{split}", values[split]) for split in SPLITS]

    def numbered(self, key: str, expected: int) -> list[Any]:
        """An object with keys "0".."expected - 1" as a list."""
        values = self.mapping(key)
        # Ends after as many looks as there are values, however many are expected.
        missing = next((number for number in range(expected) if str(number) not in values), None)
        if missing is not None:
            self.fail(key, f"lacks some of the ids 0..{expected - 1}, the first: {missing}")
        if len(values) != expected:
            self.fail(key, f"has {len(values)} entries; the splits have {expected}")
        return [values[str(number)] for number in range(expected)]

    def names(self, key: str, expected: int) -> tuple[str, ...]:
        values = self.numbered(key, expected)
        for number, value in enumerate(values):
            if not isinstance(value, str) or not value:
                self.fail(f"{key}.{number}", f"is {value!r}; a name is needed")
        return tuple(values)

    def classes(self, expected: int) -> tuple[tuple[str, ...], tuple[Images, ...]]:
        """Names and numbers of images of classes that are numbered."""
        images = enumerate(self.numbered("images_per_class", expected))
        return (
            self.names("class_names", expected),
            tuple(self.images(f"images_per_class.{number}", value) for number, value in images),
        )


def _flat(keys: _Keys, name: str, pattern: str) -> DatasetSpec:
    counts = keys.per_split("classes_per_split")
    names, images = keys.classes(sum(counts))
    return DatasetSpec(name, names, images, dict(zip(SPLITS, _ranges(counts), strict=True)), pattern)


def _grouped(keys: _Keys, name: str, pattern: str) -> DatasetSpec:
    per_split = keys.per_split("superclasses_per_split")
    group_names = keys.names("superclass_names", sum(per_split))
    if len(set(group_names)) != len(group_names):
        keys.fail("superclass_names", "has a name twice")
    sizes = [
        keys.count(f"classes_per_superclass.{number}", value)
        for number, value in enumerate(keys.numbered("classes_per_superclass", len(group_names)))
    ]
    names, images = keys.classes(sum(sizes))
    groups = tuple(map(Superclass, group_names, _ranges(sizes)))
    superclasses = {
        split: groups[part.start : part.stop] for split, part in zip(SPLITS, _ranges(per_split), strict=True)
    }
    counts = [sum(len(group.classes) for group in superclasses[split]) for split in SPLITS]
    classes = dict(zip(SPLITS, _ranges(counts), strict=True))
    return DatasetSpec(name, names, images, classes, pattern, superclasses=superclasses)


def _hierarchical(keys: _Keys, name: str, pattern: str) -> DatasetSpec:
    names = keys.names("class_names", len(keys.mapping("class_names")))
    ids = {class_name: number for number, class_name in enumerate(names)}
    graphs: dict[str, Graph] = {}
    classes: dict[str, range] = {}
    images: dict[str, int] = {}
    for split in SPLITS:
        graphs[split] = _graph(keys, f"split_subgraphs.{split}", keys.mapping("split_subgraphs").get(split))
        sizes = keys.mapping("images_per_class").get(split)
        if not isinstance(sizes, dict):
            keys.fail(f"images_per_class.{split}", "is missing or not an object")
        for leaf in leaves(graphs[split]):
            if leaf not in ids:
                keys.fail("class_names", f"lacks {leaf!r}, a leaf of {split}")
            images[leaf] = keys.count(f"images_per_class.{split}.{leaf}", sizes.get(leaf))
        found = sorted(ids[leaf] for leaf in leaves(graphs[split]))
        classes[split] = range(found[0], found[-1] + 1) if found else range(0)
        if len(classes[split]) != len(found):
            keys.fail("class_names", f"does not number the leaves of {split} without gaps")
    for class_name in names:
        if class_name not in images:
            keys.fail("split_subgraphs", f"has no leaf {class_name!r}, which class_names has")
    return DatasetSpec(
        name, names, tuple(images[class_name] for class_name in names), classes, pattern, graphs=graphs
    )


def _graph(keys: _Keys, key: str, nodes: object) -> Graph:
    if not isinstance(nodes, list):
        keys.fail(key, "is missing or not a list of nodes")
    graph: dict[str, Synset] = {}
    for position, node in enumerate(nodes):
        where = f"{key}[{position}]"
        if not isinstance(node, dict) or not all(
            isinstance(node.get(key), str) for key in ("wn_id", "words")
        ):
            keys.fail(where, "is not a node with a 'wn_id' and its 'words'")
        for relation in ("children_ids", "parents_ids"):
            related = node.get(relation)
            if not isinstance(related, list) or not all(isinstance(other, str) for other in related):
                keys.fail(f"{where}.{relation}", "is missing or not a list of ids")
            if len(set(related)) != len(related):
                keys.fail(f"{where}.{relation}", "names a node twice")
        if node["wn_id"] in graph:
            keys.fail(where, f"repeats the node {node['wn_id']!r}")
        graph[node["wn_id"]] = Synset.from_json(node)
    down = {(node.wn_id, child) for node in graph.values() for child in node.children}
    up = {(parent, node.wn_id) for node in graph.values() for parent in node.parents}
    if down != up:
        parent, child = min(down ^ up)
        keys.fail(key, f"has an edge {parent} -> {child} that only one of the two nodes names")
    try:
        spanned(tuple(graph.values()))  # raises unless every child is there and none is its own ancestor
    except BadInputError as error:
        keys.fail(key, f"is no hierarchy: {error}")
    return tuple(graph.values())


def _ranges(counts: Sequence[int]) -> list[range]:
    """Consecutive ranges of the given lengths: ids count split after split, alphabet after alphabet."""
    ends = list(accumulate(counts))
    return [range(end - count, end) for count, end in zip(counts, ends, strict=True)]
