"""Small specifications of each kind, as in dataset_spec.json."""

from __future__ import annotations

from typing import Any

FLAT: dict[str, Any] = {
    "name": "pets",
    "classes_per_split": {"TRAIN": 2, "VALID": 1, "TEST": 1},
    "images_per_class": {"0": 4, "1": 3, "3": 2, "2": 5},
    "class_names": {"0": "cat", "1": "dog", "2": "red fox", "3": "007.Owl"},
    "path": "somewhere",
    "file_pattern": "{}.tfrecords",
    "__class__": "DatasetSpecification",
}

GROUPED: dict[str, Any] = {
    "name": "letters",
    "superclasses_per_split": {"TRAIN": 1, "VALID": 0, "TEST": 2},
    "classes_per_superclass": {"0": 2, "1": 1, "2": 2},
    "images_per_class": {str(i): 2 for i in range(5)},
    "superclass_names": {"0": "Greek", "1": "Latin", "2": "Old-Norse"},
    "class_names": {
        "0": "Greek-character01",
        "1": "Greek-character02",
        "2": "Latin-character01",
        "3": "Old-Norse-character01",
        "4": "Old-Norse-character02",
    },
    "path": "somewhere",
    "file_pattern": "{}.tfrecords",
    "__class__": "BiLevelDatasetSpecification",
}


def node(wn_id: str, children: list[str], parents: list[str]) -> dict[str, Any]:
    return {"wn_id": wn_id, "words": f"the {wn_id}", "children_ids": children, "parents_ids": parents}


# In TRAIN: root -> animal (pet (cat, dog), wild (dog, wolf)), tool (hammer, saw); a dog is pet and wild.
GRAPH: dict[str, Any] = {
    "name": "things",
    "split_subgraphs": {
        "TRAIN": [
            node("root", ["animal", "tool"], []),
            node("animal", ["pet", "wild"], ["root"]),
            node("tool", ["hammer", "saw"], ["root"]),
            node("pet", ["cat", "dog"], ["animal"]),
            node("wild", ["dog", "wolf"], ["animal"]),
            node("cat", [], ["pet"]),
            node("dog", [], ["pet", "wild"]),
            node("wolf", [], ["wild"]),
            node("hammer", [], ["tool"]),
            node("saw", [], ["tool"]),
        ],
        "VALID": [],
        "TEST": [node("plant", ["rose", "oak"], []), node("rose", [], ["plant"]), node("oak", [], ["plant"])],
    },
    "images_per_class": {
        "TRAIN": {
            "root": 15, "animal": 6, "tool": 9, "pet": 3, "wild": 5,
            "cat": 1, "dog": 2, "wolf": 3, "hammer": 4, "saw": 5,
        },
        "VALID": {},
        "TEST": {"plant": 13, "rose": 6, "oak": 7},
    },
    "class_names": {"0": "cat", "1": "dog", "2": "wolf", "3": "hammer", "4": "saw", "5": "rose", "6": "oak"},
    "path": "somewhere",
    "file_pattern": "{}.tfrecords",
    "__class__": "HierarchicalDatasetSpecification",
}  # fmt: skip
