"""What would exceed memory, or leave its folder, is refused before it begins."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest
from data.pictures import class_folders
from data.specs import FLAT

from cl_cnaps import torch_setup
from cl_cnaps.data import open_source, packed
from cl_cnaps.data.atomic import write_text
from cl_cnaps.data.conversion import plan_conversion
from cl_cnaps.data.records import encode_example, write_records
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.paths import below


def test_specification_of_endless_images(tmp_path: Path) -> None:
    spec = copy.deepcopy(FLAT)
    spec["images_per_class"]["1"] = 10**18
    (tmp_path / "dataset_spec.json").write_text(json.dumps(spec))
    for class_id in range(4):
        write_records(tmp_path / f"{class_id}.tfrecords", [encode_example(b"x", class_id)] * 5)
    with pytest.raises(
        BadInputError, match=r"class 1 has 1,000,000,000,000,000,000 images; .* can hold \d+ at"
    ):
        open_source(f"records:{tmp_path}")


@pytest.mark.parametrize(
    "name", ["../outside", "/outside", "a/../../b", "C:x", "a\\b", "a\0b", "..", "", "."]
)
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="cannot be the name of a file or folder below"):
        below(tmp_path, name)


def test_names_that_stay_are_kept(tmp_path: Path) -> None:
    assert below(tmp_path, "a/b..c/.d") == tmp_path / "a" / "b..c" / ".d"


def test_specification_name_that_leads_out(tmp_path: Path) -> None:
    source = open_source(f"folder:{class_folders(tmp_path / 'pets', {'cat': 2, 'dog': 2})}")
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({**FLAT, "name": "../../OUTSIDE"}))
    with pytest.raises(BadInputError, match=r"'\.\./\.\./OUTSIDE' cannot be the name"):
        plan_conversion(source, tmp_path / "out", spec_file=file)


def test_a_list_of_labels_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    class_folders(tmp_path / "gtsrb" / "GTSRB" / "Training", {"00000": 1})
    (tmp_path / "gtsrb" / "GT-final_test.csv").write_text("Filename;ClassId\n../../../../secret.png;1\n")
    with pytest.raises(BadInputError, match=r"secret\.png' cannot be the name"):
        open_source("traffic_sign", root=tmp_path)


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(BadInputError, match="is a folder, pipe or device: choose another name"):
            write_text(path, "content")
    assert pipe.is_fifo() and [*tmp_path.iterdir()] == [pipe]


def test_images_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(f"folder:{class_folders(tmp_path / 'pets', {'cat': 2})}")
    monkeypatch.setattr(torch_setup, "free_memory", lambda: 10**8)
    message = r"reading 2 images of pets at 4096 x 4096 pixels takes 0\.2 GB of memory, and 0\.1 GB are free"
    with pytest.raises(BadInputError, match=message):
        source.images("all", "cat", [0, 1], 4096)
    quick = packed(source, 16)
    with pytest.raises(BadInputError, match=message):
        quick.images("all", "cat", [0, 1], 4096)


@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet18", "timm:test_resnet"])
def test_an_image_beyond_memory(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch_setup, "free_memory", lambda: 10**8)
    message = rf"one image of 2048 x 2048 pixels in {name} takes \d\.\d GB of memory, and 0\.1 GB are free"
    with pytest.raises(BadInputError, match=message):
        load_backbone(name, weights="random", image_size=2048)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    monkeypatch.setattr(torch_setup, "_GROUP", tmp_path)
    assert torch_setup.free_memory() == 600
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    7 kB\n")
    monkeypatch.setattr(torch_setup, "_MEMINFO", tmp_path / "meminfo")
    assert torch_setup.free_memory() == 7168
    monkeypatch.setattr(torch_setup, "_MEMINFO", tmp_path / "none")
    assert torch_setup.free_memory() is None
