from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from data.specs import FLAT, GRAPH, GROUPED, node

from cl_cnaps.data.spec import parse_spec, read_spec
from cl_cnaps.errors import BadInputError, MissingDataError


@pytest.mark.parametrize("document", [FLAT, GROUPED, GRAPH], ids=lambda d: d["name"])
def test_every_kind_comes_out_as_it_went_in(document: dict[str, Any]) -> None:
    assert parse_spec(document).as_json("somewhere") == document


def test_official_specifications_come_out_as_they_went_in(official_specs: Path) -> None:
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


@pytest.mark.parametrize(
    ("document", "change", "message"),
    [
        (FLAT, {"__class__": "Other"}, "unknown kind of specification 'Other'"),
        (FLAT, {"file_pattern": "{}.zip"}, "file_pattern is '{}.zip'"),
        (FLAT, {"class_names": {"0": "cat", "2": "dog"}}, "ids do not run from 0 to 1"),
        (FLAT, {"classes_per_split": {"TRAIN": 2, "VALID": 1, "TEST": 9}}, "4 class names, but splits of 12"),
        (FLAT, {"images_per_class": {"0": 1}}, "4 class names, but image counts of 1"),
        (FLAT, {"classes_per_split": None}, "not a Meta-Dataset specification"),
        (GRAPH, {"class_names": {"0": "cat"}}, "not a Meta-Dataset specification: KeyError"),
    ],
)
def test_what_does_not_go_together_is_named_with_its_file(
    tmp_path: Path, document: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    file = tmp_path / "dataset_spec.json"
    file.write_text(json.dumps(document | change))
    with pytest.raises(BadInputError, match=rf"dataset_spec\.json.*{message}"):
        read_spec(file)


def test_a_graph_that_runs_in_a_circle_is_refused() -> None:
    document = copy.deepcopy(GRAPH)
    document["split_subgraphs"]["TEST"] = [node("a", ["b"], ["b"]), node("b", ["a"], ["a"])]
    with pytest.raises(BadInputError, match="runs in a circle"):
        parse_spec(document)


def test_files_that_are_no_json_or_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"none\.json"):
        read_spec(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(BadInputError, match=r"x\.json is not JSON"):
        read_spec(tmp_path / "x.json")
