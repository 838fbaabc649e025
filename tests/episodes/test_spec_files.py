from __future__ import annotations

import json
from pathlib import Path

import pytest
from data.specs import FLAT, GRAPH, GROUPED

from cl_cnaps.episodes import read_spec
from cl_cnaps.errors import BadInputError


def write(folder: Path, content: object) -> Path:
    path = folder / "dataset_spec.json"
    path.write_text(json.dumps(content))
    return path


def test_plain_classes_by_split(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, FLAT))
    assert spec.name == "pets"
    train, test = spec.split("TRAIN"), spec.split("TEST")
    assert (train.classes.names, train.classes.ids, train.classes.sizes) == (("cat", "dog"), (0, 1), (4, 3))
    assert (test.classes.names, test.classes.ids, test.classes.sizes) == (("007.Owl",), (3,), (2,))
    assert train.groups is None
    assert train.graph is None


def test_a_pool_of_images_is_chosen_by_name(tmp_path: Path) -> None:
    pools = {str(k): {"train": 60 + k, "test": 10 + k} for k in range(4)}
    path = write(tmp_path, {**FLAT, "images_per_class": pools})
    assert read_spec(path, pool="test").split("TRAIN").classes.sizes == (10, 11)
    with pytest.raises(
        BadInputError, match=r"spec\.json: .*'cat' are in pools \['test', 'train'\]; say which"
    ):
        read_spec(path)
    with pytest.raises(BadInputError, match="there is no 'valid'"):
        read_spec(path, pool="valid")
    with pytest.raises(BadInputError, match="not divided into pools"):
        read_spec(write(tmp_path, FLAT), pool="test")


def test_alphabets_are_groups(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, GROUPED))
    assert spec.split("TEST").groups == {
        "Latin": ("Latin-character01",),
        "Old-Norse": ("Old-Norse-character01", "Old-Norse-character02"),
    }
    assert spec.split("TEST").classes.ids == (2, 3, 4)
    assert spec.split("VALID").groups == {}


def test_a_graph_spans_the_classes_of_its_split(tmp_path: Path) -> None:
    train = read_spec(write(tmp_path, GRAPH)).split("TRAIN")
    assert train.classes.names == ("cat", "dog", "wolf", "hammer", "saw")
    assert train.classes.sizes == (1, 2, 3, 4, 5)
    assert train.graph is not None
    assert train.graph.spans["animal"] == ("cat", "dog", "wolf")
