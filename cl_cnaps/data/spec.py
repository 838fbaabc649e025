"""Meta-Dataset's dataset_spec.json: which classes a set has, in which split, and how they hang together.

Three kinds: plain classes; classes in superclasses (Omniglot's alphabets); the leaves of a graph per split
(ImageNet's part of WordNet). Class ids run from 0 without gaps: training classes, then validation, then test.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_cnaps.data.atomic import write_text
from cl_cnaps.data.wordnet import Graph, images_below

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
