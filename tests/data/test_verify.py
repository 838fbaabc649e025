from __future__ import annotations

from pathlib import Path

import pytest
from data.pictures import class_folders
from data.specs import FLAT

from cl_cnaps.data import open_source
from cl_cnaps.data.catalog import CATALOG
from cl_cnaps.data.conversion import convert
from cl_cnaps.data.registry import find
from cl_cnaps.data.spec import parse_spec
from cl_cnaps.data.verify import Difference, verify


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "pets", {"cat": 4, "dog": 3, "newt": 1}, suffix="jpg")


def test_every_image_is_opened_and_every_bad_one_named(folder: Path) -> None:
    (folder / "cat" / "1.jpg").write_bytes(b"")
    whole = (folder / "dog" / "2.jpg").read_bytes()
    (folder / "dog" / "2.jpg").write_bytes(whole[:-100])
    told: list[int] = []
    result = verify(open_source(f"folder:{folder}"), progress=told.append)
    assert result.good == {"all": {"cat": 3, "dog": 2, "newt": 1}}
    assert result.images == 6
    assert sum(told) == 8
    first, second = result.bad
    assert first.startswith(str(folder / "cat" / "1.jpg"))
    assert second.startswith(str(folder / "dog" / "2.jpg"))
    assert result.differences == ()


def test_counts_are_compared_with_a_specification(folder: Path) -> None:
    result = verify(open_source(f"folder:{folder}"), parse_spec(FLAT))
    assert result.bad == ()
    assert result.differences == (
        Difference("red fox", 0, 5),
        Difference("007.Owl", 0, 2),
        Difference("newt", 1, 0),
    )


def test_published_counts(tmp_path: Path) -> None:
    class_folders(tmp_path / "cifar10", {"train/cat": 1, "test/cat": 1})
    source = find(CATALOG["cifar10"], tmp_path)
    assert source is not None
    assert Difference("train images", 1, 50_000) in verify(source).differences
    assert Difference("test classes", 1, 10) in verify(source).differences


def test_a_truncated_record_file_is_named_once(folder: Path, tmp_path: Path) -> None:
    records = convert(open_source(f"folder:{folder}"), parse_spec(FLAT), tmp_path / "r").folder
    file = records / "0.tfrecords"
    file.write_bytes(file.read_bytes()[:-1])
    result = verify(open_source(f"records:{records}"))
    assert len(result.bad) == 1
    assert "0.tfrecords: record at byte" in result.bad[0]
    assert result.images == 3
