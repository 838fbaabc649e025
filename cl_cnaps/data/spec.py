"""Meta-Dataset's dataset_spec.json: which classes a set has, in which split, and how they are related.

Three kinds: plain classes; classes in superclasses (Omniglot's alphabets); the leaves of a graph per split (ImageNet's
part of WordNet). Class ids run from 0 without gaps: training classes, then validation, then test. Each key is checked
when a file is read, so that an error names the file and the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from cl_cnaps.data.atomic import write_text
from cl_cnaps.data.folders import plain
from cl_cnaps.data.registry import SPEC_FILE
from cl_cnaps.data.wordnet import Graph, Synset, class_graph, images_below, leaves, pruned
from cl_cnaps.errors import BadInputError, foreign
from cl_cnaps.paths import read_json

SPLITS = ("TRAIN", "VALID", "TEST")
PATTERNS = ("{}.tfrecords", "{}_{}.tfrecords")

Images = int | Mapping[str, int]
"""Number of images of a class, or one for each pool ("train", "test") that has a record file of its own."""


@dataclass(frozen=True)
class Superclass:
    """A group of classes with consecutive ids."""

    name: str
    classes: range


@dataclass(frozen=True)
class DatasetSpec:
    """Classes of one data set."""

    name: str
    class_names: tuple[str, ...]
    """By class id."""

    images_per_class: tuple[Images, ...]
    """By class id."""

    classes: Mapping[str, range]
    """Split -> its class ids."""

    file_pattern: str = PATTERNS[0]
    superclasses: Mapping[str, tuple[Superclass, ...]] | None = None
    """Split -> its superclasses, if the classes are grouped."""

    graphs: Mapping[str, Graph] | None = None
    """Split -> its graph, if the classes are leaves of one; leaves are called by class name."""

    def images(self, class_id: int) -> int:
        """Number of images of a class, pools together."""
        count = self.images_per_class[class_id]
        return count if isinstance(count, int) else sum(count.values())

    def as_json(self, path: str = "") -> dict[str, Any]:
        """The specification as Meta-Dataset's own code reads it; `path` is where the records lie."""
        document: dict[str, Any] = {"name": self.name}
        images: dict[str, Any] = {str(i): count for i, count in enumerate(self.images_per_class)}
        kind = "DatasetSpecification"
        if self.graphs is not None:
            kind = "HierarchicalDatasetSpecification"
            sizes = {name: self.images(i) for i, name in enumerate(self.class_names)}
            document["split_subgraphs"] = {s: [n.as_json() for n in self.graphs[s]] for s in SPLITS}
            images = {s: images_below(self.graphs[s], sizes) for s in SPLITS}
        elif self.superclasses is not None:
            kind = "BiLevelDatasetSpecification"
            every = [group for split in SPLITS for group in self.superclasses[split]]
            document["superclasses_per_split"] = {s: len(self.superclasses[s]) for s in SPLITS}
            document["classes_per_superclass"] = {str(i): len(g.classes) for i, g in enumerate(every)}
            document["superclass_names"] = {str(i): group.name for i, group in enumerate(every)}
        else:
            document["classes_per_split"] = {split: len(self.classes[split]) for split in SPLITS}
        names = {str(i): name for i, name in enumerate(self.class_names)}
        return document | {
            "images_per_class": images,
            "class_names": names,
            "path": path,
            "file_pattern": self.file_pattern,
            "__class__": kind,
        }

    def write(self, file: Path, path: str = "") -> None:
        """Write dataset_spec.json."""
        write_text(file, json.dumps(self.as_json(path), indent=2) + "\n")


def read_spec(file: Path) -> DatasetSpec:
    """A `dataset_spec.json`: flat, in alphabets (bi-level) or with a WordNet graph (hierarchical)."""
    content = _read_object(file)
    try:
        with foreign("what it holds", "is no specification"):
            return parse_spec(content)
    except BadInputError as error:
        raise BadInputError(f"{file}: {error}") from None


def find_spec(name: str, folder: Path) -> Path | None:
    """Return the specification of a data set in a folder of them: NAME_dataset_spec.json, or NAME/dataset_spec.json."""
    for file in (folder / f"{name}_{SPEC_FILE}", folder / name / SPEC_FILE):
        if file.is_file():
            return file
    return None


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


def _read_object(file: Path) -> dict[str, Any]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise BadInputError(f"{file}: holds a JSON {type(content).__name__}; an object is needed")
    return content


@dataclass(frozen=True)
class _Keys:
    """The keys of one file, checked when they are read."""

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
        class_graph(tuple(graph.values()))  # raises unless every child is there and none is its own ancestor
    except BadInputError as error:
        keys.fail(key, f"is no hierarchy: {error}")
    return tuple(graph.values())


def _ranges(counts: Sequence[int]) -> list[range]:
    """Consecutive ranges of the given lengths: ids count split after split, alphabet after alphabet."""
    ends = list(accumulate(counts))
    return [range(end - count, end) for count, end in zip(counts, ends, strict=True)]


K = TypeVar("K", bound=Hashable)


def matched(labels: Sequence[str], names: Sequence[str]) -> dict[int, str]:
    """Class id of a specification -> the class of a source that it means, for those that have one.

    Names are compared without case and punctuation. Where the specification's names begin with a number
    ("014.Indigo bunting"), a source may call the class by its number alone.
    """
    by_name = _unique(((plain(name), name) for name in names), "folder")
    by_number = _unique(((int(name), name) for name in names if name.isdecimal()), "folder")
    found: dict[int, str] = {}
    for class_id, label in enumerate(labels):
        number = re.match(r"(\d+)\.", label)
        if plain(label) in by_name:
            found[class_id] = by_name[plain(label)]
        elif number is not None and int(number[1]) in by_number:
            found[class_id] = by_number[int(number[1])]
    _unique(((name, labels[class_id]) for class_id, name in found.items()), "class of the specification")
    return found


def subset(spec: DatasetSpec, counts: Mapping[int, int]) -> DatasetSpec:
    """The classes whose ids are in `counts`, with these image counts, numbered again, one file each."""
    chosen = sorted(counts)
    new_id = {old: new for new, old in enumerate(chosen)}
    names = tuple(spec.class_names[i] for i in chosen)
    classes: dict[str, range] = {}
    start = 0
    for split in SPLITS:
        kept = sum(i in new_id for i in spec.classes[split])
        classes[split] = range(start, start + kept)
        start += kept
    superclasses = None
    if spec.superclasses is not None:
        superclasses = {s: _regrouped(spec.superclasses[s], new_id) for s in SPLITS}
    graphs = None
    if spec.graphs is not None:
        graphs = {s: pruned(spec.graphs[s], {spec.class_names[i] for i in chosen}) for s in SPLITS}
    images = tuple(counts[i] for i in chosen)
    return DatasetSpec(spec.name, names, images, classes, superclasses=superclasses, graphs=graphs)


def by_fractions(
    name: str, counts: Mapping[str, int], fractions: tuple[float, float, float], seed: int
) -> DatasetSpec:
    """Plain classes dealt out at random to training, validation and test in these proportions."""
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise BadInputError(f"fractions of classes must be 0 or more and add up to 1; got {fractions}")
    names = list(counts)
    bounds = np.rint(np.cumsum(fractions) * len(names)).astype(int).tolist()
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    parts = [sorted(order[start:stop]) for start, stop in zip([0, *bounds], bounds, strict=False)]
    dealt = tuple(names[i] for part in parts for i in part)
    classes = {
        split: range(stop - len(part), stop) for split, part, stop in zip(SPLITS, parts, bounds, strict=True)
    }
    return DatasetSpec(name, dealt, tuple(counts[class_name] for class_name in dealt), classes)


def _regrouped(groups: Sequence[Superclass], new_id: Mapping[int, int]) -> tuple[Superclass, ...]:
    kept = [(group.name, [new_id[i] for i in group.classes if i in new_id]) for group in groups]
    return tuple(Superclass(name, range(ids[0], ids[-1] + 1)) for name, ids in kept if ids)


def _unique(pairs: Iterable[tuple[K, str]], what: str) -> dict[K, str]:
    """The pairs as a table; two values of one key are an error."""
    table: dict[K, str] = {}
    for key, value in pairs:
        if table.setdefault(key, value) != value:
            raise BadInputError(f"{table[key]!r} and {value!r} look like the same {what}; rename one")
    return table
