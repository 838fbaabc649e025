from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cl_cnaps.data.spec import find_spec, read_spec
from cl_cnaps.errors import BadInputError, MissingDataError

FLAT: dict[str, Any] = {
    "__class__": "DatasetSpecification",
    "name": "shapes",
    "classes_per_split": {"TRAIN": 2, "VALID": 0, "TEST": 1},
    # JSON written elsewhere may have any order; ids decide.
    "images_per_class": {"2": 30, "0": 10, "1": 20},
    "class_names": {"0": "disc", "1": "ring", "2": "star"},
    "path": "/somewhere",
    "file_pattern": "{}.tfrecords",
}
GROUPED: dict[str, Any] = {
    "__class__": "BiLevelDatasetSpecification",
    "name": "scripts",
    "superclasses_per_split": {"TRAIN": 1, "VALID": 0, "TEST": 2},
    "classes_per_superclass": {"0": 2, "1": 1, "2": 2},
    "superclass_names": {"0": "Greek", "1": "Latin", "2": "Runic"},
    "images_per_class": {str(k): 20 + k for k in range(5)},
    "class_names": {str(k): f"character{k}" for k in range(5)},
    "file_pattern": "{}.tfrecords",
}


def _node(wn_id: str, children: list[str], parents: list[str]) -> dict[str, Any]:
    return {"wn_id": wn_id, "words": wn_id, "children_ids": children, "parents_ids": parents}


GRAPH: dict[str, Any] = {
    "__class__": "HierarchicalDatasetSpecification",
    "name": "things",
    "split_subgraphs": {
        "TRAIN": [_node("n1", ["n8", "n7"], []), _node("n7", [], ["n1"]), _node("n8", [], ["n1"])],
        "VALID": [],
        "TEST": [_node("n9", [], [])],
    },
    "images_per_class": {"TRAIN": {"n1": 70, "n7": 30, "n8": 40}, "VALID": {}, "TEST": {"n9": 5}},
    "class_names": {"0": "n8", "1": "n7", "2": "n9"},
    "file_pattern": "{}.tfrecords",
}


def write(folder: Path, content: object) -> Path:
    path = folder / "dataset_spec.json"
    path.write_text(json.dumps(content))
    return path


def changed(content: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy with the value at a dotted path replaced, or removed if it is None."""
    content = copy.deepcopy(content)
    *way, last = key.split(".")
    part: Any = content
    for step in way:
        part = part[int(step) if isinstance(part, list) else step]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return content


@pytest.mark.parametrize(
    ("content", "key", "value", "message"),
    [
        (FLAT, "__class__", "Other", "'__class__' is 'Other'"),
        (FLAT, "__class__", None, "'__class__'"),
        (FLAT, "name", 3, "'name' is 3"),
        (FLAT, "classes_per_split.TEST", None, "'classes_per_split' lacks the split TEST"),
        (FLAT, "classes_per_split.TEST", 2, "'images_per_class' lacks some of the ids 0..3, the first: 3"),
        (FLAT, "classes_per_split.TEST", -1, "'classes_per_split.TEST' is -1"),
        (FLAT, "images_per_class.1", "many", "'images_per_class.1' is 'many'"),
        (FLAT, "images_per_class.1", True, "'images_per_class.1' is True"),
        (FLAT, "images_per_class.3", 7, "'images_per_class' has 4 entries"),
        (FLAT, "images_per_class", [1, 2, 3], "'images_per_class' is missing or not an object"),
        (FLAT, "class_names", None, "'class_names' is missing"),
        (FLAT, "class_names.1", 5, "'class_names.1' is 5"),
        (FLAT, "class_names.1", "disc", "'class_names' has the name 'disc' twice"),
        (FLAT, "file_pattern", "{}.zip", r"'file_pattern' is '\{\}.zip'"),
        (FLAT, "images_per_class.1", {"train": -1}, "'images_per_class.1.train' is -1"),
        (GROUPED, "classes_per_superclass.1", None, "'classes_per_superclass' lacks some"),
        (GROUPED, "classes_per_superclass.1", 2, "'images_per_class' lacks some"),
        (GROUPED, "superclass_names.1", "Greek", "'superclass_names' has a name twice"),
        (GRAPH, "split_subgraphs.VALID", None, "'split_subgraphs.VALID' is missing"),
        (GRAPH, "split_subgraphs.TRAIN.1.wn_id", None, r"'split_subgraphs.TRAIN\[1\]' is not a node"),
        (GRAPH, "split_subgraphs.TRAIN.1.wn_id", "n8", "repeats the node 'n8'"),
        (GRAPH, "split_subgraphs.TRAIN.0.children_ids", "n7", r"TRAIN\[0\].children_ids' is missing or not"),
        (GRAPH, "split_subgraphs.TRAIN.0.children_ids", ["n7"], "n1 -> n8 that only one"),
        (GRAPH, "split_subgraphs.TEST.0.parents_ids", ["n0"], "n0 -> n9 that only one"),
        (GRAPH, "images_per_class.TRAIN.n7", None, "'images_per_class.TRAIN.n7' is None"),
        (GRAPH, "images_per_class.TEST", None, "'images_per_class.TEST' is missing"),
        (GRAPH, "class_names.2", "n4", "'class_names' lacks 'n9', a leaf of TEST"),
        (GRAPH, "class_names.3", "n4", "'split_subgraphs' has no leaf 'n4'"),
        (GRAPH, "class_names", {"0": "n8", "1": "n9", "2": "n7"}, "does not number the leaves of TRAIN"),
    ],
)
def test_a_broken_spec_is_refused_by_file_and_key(tmp_path, content, key, value, message):
    path = write(tmp_path, changed(content, key, value))
    with pytest.raises(BadInputError, match=message) as raised:
        read_spec(path)
    assert str(raised.value).startswith(str(path))


def test_a_cyclic_graph_is_refused_by_file_and_key(tmp_path):
    nodes = [_node("n1", ["n7"], ["n7"]), _node("n7", ["n1"], ["n1"])]
    with pytest.raises(
        BadInputError, match=r"'split_subgraphs.TRAIN' is no hierarchy: the graph has a cycle"
    ):
        read_spec(write(tmp_path, changed(GRAPH, "split_subgraphs.TRAIN", nodes)))


def test_a_file_that_is_no_spec_is_refused_by_name(tmp_path):
    with pytest.raises(MissingDataError, match="No such file"):
        read_spec(tmp_path / "dataset_spec.json")
    with pytest.raises(BadInputError, match="a JSON list; an object"):
        read_spec(write(tmp_path, [1]))
    (tmp_path / "dataset_spec.json").write_bytes(b'{"name": ')
    with pytest.raises(BadInputError, match="not a JSON file"):
        read_spec(tmp_path / "dataset_spec.json")


def test_a_folder_of_specifications_has_either_form_of_names(tmp_path: Path) -> None:
    assert find_spec("shapes", tmp_path) is None
    nested = tmp_path / "shapes" / "dataset_spec.json"
    nested.parent.mkdir()
    nested.write_text(json.dumps(FLAT))
    assert find_spec("shapes", tmp_path) == nested
    flat = tmp_path / "shapes_dataset_spec.json"
    flat.write_text(json.dumps(FLAT))
    assert find_spec("shapes", tmp_path) == flat
