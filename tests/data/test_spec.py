from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from data.specs import FLAT, GRAPH, GROUPED

from cl_cnaps.data.records import class_labels
from cl_cnaps.data.spec import by_fractions, matched, parse_spec, read_spec, subset
from cl_cnaps.errors import BadInputError


@pytest.mark.parametrize("document", [FLAT, GROUPED, GRAPH], ids=lambda d: d["name"])
def test_every_kind_comes_out_as_it_went_in(document: dict[str, Any]) -> None:
    assert parse_spec(document).as_json("somewhere") == document


def test_official_specifications_round_trip(official_specs: Path) -> None:
    files = sorted(official_specs.glob("*_dataset_spec.json"))
    assert len(files) == 11
    for file in files:
        document = json.loads(file.read_text())
        assert read_spec(file).as_json(document["path"]) == document, file.name


def test_ids_run_through_the_splits() -> None:
    assert parse_spec(FLAT).classes == {"TRAIN": range(2), "VALID": range(2, 3), "TEST": range(3, 4)}
    assert parse_spec(GROUPED).classes == {"TRAIN": range(2), "VALID": range(2, 2), "TEST": range(2, 5)}
    assert parse_spec(GRAPH).classes == {"TRAIN": range(5), "VALID": range(0), "TEST": range(5, 7)}
    assert parse_spec(FLAT).images_per_class == (4, 3, 5, 2)


def test_pools_of_a_class_count_together() -> None:
    document = copy.deepcopy(FLAT)
    document["images_per_class"]["0"] = {"train": 3, "test": 9}
    assert parse_spec(document).images(0) == 12
    assert parse_spec(document).as_json("somewhere") == document


def test_names_match_whatever_their_spelling() -> None:
    labels = [
        "red fox",
        "Greek/character01",
        "007.Owl",
        "00.Speed limit (20km/h)",
        "014.Indigo_Bunting",
        "absent",
    ]
    names = ["Red_Fox", "Greek/character01", "7", "00000", "014.Indigo_Bunting", "other"]
    assert matched(labels, names) == {
        0: "Red_Fox",
        1: "Greek/character01",
        2: "7",
        3: "00000",
        4: "014.Indigo_Bunting",
    }


def test_names_that_could_be_either_are_refused() -> None:
    with pytest.raises(BadInputError, match="'red_fox' and 'red fox' look like the same folder"):
        matched(["red fox"], ["red_fox", "red fox"])
    with pytest.raises(BadInputError, match="'7' and '007' look like the same folder"):
        matched(["7.a"], ["7", "007"])
    with pytest.raises(BadInputError, match="look like the same class of the specification"):
        matched(["a b", "a_b"], ["ab"])


def test_some_classes_of_a_flat_specification() -> None:
    spec = subset(parse_spec(FLAT), {1: 9, 3: 8})
    assert spec.class_names == ("dog", "007.Owl")
    assert spec.images_per_class == (9, 8)
    assert spec.classes == {"TRAIN": range(1), "VALID": range(1, 1), "TEST": range(1, 2)}
    assert parse_spec(spec.as_json()) == spec


def test_some_classes_of_a_grouped_specification() -> None:
    spec = subset(parse_spec(GROUPED), {1: 1, 3: 1, 4: 1})
    assert class_labels(spec) == ["Greek/character02", "Old-Norse/character01", "Old-Norse/character02"]
    document = spec.as_json()
    assert document["superclasses_per_split"] == {"TRAIN": 1, "VALID": 0, "TEST": 1}
    assert document["superclass_names"] == {"0": "Greek", "1": "Old-Norse"}
    assert document["classes_per_superclass"] == {"0": 1, "1": 2}
    assert parse_spec(document) == spec


def test_some_classes_of_a_graph() -> None:
    spec = subset(parse_spec(GRAPH), {0: 10, 1: 20, 3: 40, 6: 70})
    assert spec.class_names == ("cat", "dog", "hammer", "oak")
    document = spec.as_json()
    assert document["images_per_class"] == {
        "TRAIN": {"root": 70, "animal": 30, "pet": 30, "cat": 10, "dog": 20, "hammer": 40},
        "VALID": {},
        "TEST": {"oak": 70},
    }
    assert parse_spec(document) == spec


def test_classes_are_dealt_out_in_proportion_by_the_seed() -> None:
    counts = {f"class{i}": i + 1 for i in range(20)}
    spec = by_fractions("own", counts, (0.7, 0.15, 0.15), seed=1)
    assert [len(spec.classes[split]) for split in ("TRAIN", "VALID", "TEST")] == [14, 3, 3]
    assert sorted(spec.class_names) == sorted(counts)
    assert spec.images(5) == counts[spec.class_names[5]]
    assert spec == by_fractions("own", counts, (0.7, 0.15, 0.15), seed=1)
    assert spec != by_fractions("own", counts, (0.7, 0.15, 0.15), seed=2)
    assert list(by_fractions("own", counts, (0, 0, 1), seed=3).class_names) == list(counts)
    assert parse_spec(spec.as_json()) == spec


@pytest.mark.parametrize("fractions", [(0.5, 0.5, 0.5), (1.5, -0.5, 0.0)])
def test_fractions_that_are_none_are_refused(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(BadInputError, match="add up to 1"):
        by_fractions("own", {"a": 1}, fractions, seed=0)
