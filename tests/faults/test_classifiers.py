"""Classifiers that `learn` wrote, damaged or crafted: every bit counts, and one line refuses what does not fit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from data.pictures import class_folders
from faults.damage import hunt

from cl_cnaps import FewShotClassifier
from cl_cnaps.commands.main import main
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.tensor_files import read_metadata, read_tensors, write_tensors


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    features = np.random.default_rng(0).normal(size=(12, 3))
    classifier = FewShotClassifier(input="features").fit(features, np.arange(12) % 2)
    return classifier.save(tmp_path_factory.mktemp("learned") / "x.safetensors").read_bytes()


def test_a_damaged_file_is_refused(tmp_path: Path, learned: bytes) -> None:
    file = tmp_path / "x.safetensors"

    def check(content: bytes) -> None:
        if content != learned:
            file.write_bytes(content)
            with pytest.raises(ClCnapsError) as caught:
                FewShotClassifier.load(file)
            assert "x.safetensors" in str(caught.value) and "\n" not in str(caught.value)

    hunt("classifier", learned, check, budget=200)


CHANGES: list[dict[str, Any]] = [
    {"labels": [["a", 1e400]]},
    {"labels": [[["a"], 0]]},
    {"labels": 3},
    {"classes": [["a"], "b"]},
    {"calibration": {"scale": "x", "images": 1, "nearest": []}},
    {"calibration": {"scale": float("nan"), "images": 1, "nearest": [1.0]}},
    {"parameters": {"input": "features", "no_such": 1}},
    {"state": {"items": [["tasks", 3]]}},
    {"state": []},
    {"config": None},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_crafted_file_is_refused(tmp_path: Path, learned: bytes, change: dict[str, Any]) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(learned)
    metadata = read_metadata(file)
    metadata["classifier"] = json.dumps({**json.loads(metadata["classifier"]), **change})
    write_tensors(file, read_tensors(file), metadata)
    with pytest.raises(ClCnapsError, match=r"x\.safetensors"):
        FewShotClassifier.load(file)


def test_nesting_without_end_is_refused(tmp_path: Path, learned: bytes) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(learned)
    metadata = {**read_metadata(file), "classifier": "[" * 100_000}
    write_tensors(file, read_tensors(file), metadata)
    with pytest.raises(ClCnapsError, match=r"x\.safetensors"):
        FewShotClassifier.load(file)


def test_names_of_images_are_bytes(tmp_path: Path) -> None:
    """A name that is not UTF-8, or that a terminal would obey, is escaped in all that is written and printed."""
    folder = class_folders(tmp_path / "pets", {"cat": 3, "dog": 3})
    (folder / "cat" / "0.png").rename(os.fsdecode(os.fsencode(folder) + b"/cat/\xff\x1b[31m.png"))
    file = tmp_path / "pets.safetensors"
    options = ["--backbone", "timm:test_resnet", "--backbone-weights", "random", "--out", str(file)]
    assert CliRunner().invoke(main, ["learn", str(folder), *options]).exit_code == 0
    for form in ("--json", "--csv", "--quiet"):
        words = ["predict", str(file), str(folder), "--out", str(tmp_path / "out"), form]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
    assert "\\udcff" in (tmp_path / "out" / "predictions.csv").read_text()
