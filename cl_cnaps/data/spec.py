"""Meta-Dataset's dataset_spec.json: which classes a set has, in which split, and how they hang together.

Three kinds: plain classes; classes in superclasses (Omniglot's alphabets); the leaves of a graph per split
(ImageNet's part of WordNet). Class ids run from 0 without gaps: training classes, then validation, then test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_cnaps.data.atomic import write_text
from cl_cnaps.data.wordnet import Graph, Synset, images_below, leaves, spanned
from cl_cnaps.errors import BadInputError, MissingDataError

SPLITS = ("TRAIN", "VALID", "TEST")
PATTERNS = ("{}.tfrecords", "{}_{}.tfrecords")


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

    images_per_class: tuple[int | Mapping[str, int], ...]
    """By class id: a number, or one for each pool ("train", "test") that has a record file of its own."""

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
    """Read a dataset_spec.json of any of the three kinds."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MissingDataError(f"{file} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadInputError(f"{file} is not JSON ({error})") from error
    try:
        return parse_spec(document)
    except BadInputError as error:
        raise BadInputError(f"{file}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadInputError(f"{file} is not a Meta-Dataset specification: {error!r}") from error


def parse_spec(document: Mapping[str, Any]) -> DatasetSpec:
    """A specification from the content of a dataset_spec.json."""
    kind = document["__class__"]
    names = _by_id(document["class_names"])
    pattern = document["file_pattern"]
    if pattern not in PATTERNS:
        raise BadInputError(f"file_pattern is {pattern!r}; expected one of {', '.join(PATTERNS)}")
    if kind == "HierarchicalDatasetSpecification":
        graphs = {s: tuple(map(Synset.from_json, document["split_subgraphs"][s])) for s in SPLITS}
        counts = {name: n for s in SPLITS for name, n in document["images_per_class"][s].items()}
        classes = _leaf_ids(graphs, names)
        images = tuple(int(counts[name]) for name in names)
        return DatasetSpec(document["name"], names, images, classes, pattern, graphs=graphs)
    images = _by_id(document["images_per_class"])
    if len(images) != len(names):
        raise BadInputError(f"{len(names)} class names, but image counts of {len(images)} classes")
    if kind == "BiLevelDatasetSpecification":
        sizes = _by_id(document["classes_per_superclass"])
        ranges = list(_consecutive(sizes))
        groups = tuple(map(Superclass, _by_id(document["superclass_names"]), ranges))
        parts = dict(
            zip(SPLITS, _consecutive([document["superclasses_per_split"][s] for s in SPLITS]), strict=True)
        )
        superclasses = {s: groups[part.start : part.stop] for s, part in parts.items()}
        per_split = [sum(len(group.classes) for group in superclasses[s]) for s in SPLITS]
        classes = dict(zip(SPLITS, _consecutive(per_split), strict=True))
        spec = DatasetSpec(document["name"], names, images, classes, pattern, superclasses=superclasses)
    elif kind == "DatasetSpecification":
        classes = dict(
            zip(SPLITS, _consecutive([document["classes_per_split"][s] for s in SPLITS]), strict=True)
        )
        spec = DatasetSpec(document["name"], names, images, classes, pattern)
    else:
        raise BadInputError(f"unknown kind of specification {kind!r}")
    if sum(map(len, spec.classes.values())) != len(names):
        raise BadInputError(f"{len(names)} class names, but splits of {sum(map(len, spec.classes.values()))}")
    return spec


def _by_id(table: Mapping[str, Any]) -> tuple[Any, ...]:
    """Values of a table whose keys are the ids 0, 1, 2, ... in any order."""
    values = {int(key): value for key, value in table.items()}
    if sorted(values) != list(range(len(values))):
        raise BadInputError(f"ids do not run from 0 to {len(values) - 1}")
    return tuple(values[i] for i in range(len(values)))


def _consecutive(sizes: list[int] | tuple[int, ...]) -> Iterator[range]:
    start = 0
    for size in sizes:
        yield range(start, start + size)
        start += size


def _leaf_ids(graphs: Mapping[str, Graph], names: tuple[str, ...]) -> dict[str, range]:
    """Class ids of the leaves of each split's graph."""
    ids = {name: i for i, name in enumerate(names)}
    classes: dict[str, range] = {}
    for split in SPLITS:
        spanned(graphs[split])  # raises unless every child is there and none is its own ancestor
        found = sorted(ids[leaf] for leaf in leaves(graphs[split]))
        classes[split] = range(found[0], found[-1] + 1) if found else range(0)
        if len(classes[split]) != len(found):
            raise BadInputError(f"the class ids of split {split} are not consecutive")
    return classes
