from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from data.specs import FLAT, GRAPH, GROUPED

from cl_cnaps.data.spec_files import parse_spec, read_spec


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
