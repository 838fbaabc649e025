from __future__ import annotations

import multiprocessing
import pickle
import time
from pathlib import Path

import pytest
import torch
from data.pictures import class_folders

from cl_cnaps.data import Source, open_source, packed, packing
from cl_cnaps.data.packing import PackedSource, clean, packed_file, packed_folder
from cl_cnaps.data.registry import open_path
from cl_cnaps.data.source import CountedSource
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError


@pytest.fixture
def source(tmp_path: Path) -> CountedSource:
    folder = class_folders(tmp_path / "animals", {"train/cat": 3, "train/dog": 2, "test/cat": 4})
    return open_source(f"folder:{folder}")


def test_packed_images_are_those_of_the_source(source: CountedSource) -> None:
    told: list[int] = []
    quick = packed(source, 16, progress=told.append)
    assert isinstance(quick, Source)
    assert sum(told) == 9
    for split in source.splits:
        for name in source.classes(split):
            rows = list(range(source.count(split, name)))[::-1]
            assert torch.equal(quick.images(split, name, rows, 16), source.images(split, name, rows, 16))
    assert torch.equal(quick.images("test", "cat", [1], 8), source.images("test", "cat", [1], 8))
    assert quick.images("test", "cat", [], 16).shape == (0, 3, 16, 16)
    assert (quick.name, quick.origin, quick.digest()) == (source.name, source.origin, source.digest())
    with pytest.raises(BadInputError, match="has 4 images in split 'test'; there is no image number 4"):
        quick.images("test", "cat", [4], 16)


def test_images_are_decoded_once(source: CountedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(source, 16)
    monkeypatch.setattr(CountedSource, "images", lambda *_: pytest.fail("decoded again"))
    again = pickle.loads(pickle.dumps(packed(source, 16)))
    assert again.images("train", "dog", [0, 1], 16).shape == (2, 3, 16, 16)


def test_a_returned_tensor_may_be_changed_without_harm(source: CountedSource) -> None:
    quick = packed(source, 16)
    quick.images("train", "cat", [0], 16).zero_()
    assert quick.images("train", "cat", [0], 16).any()


def test_grey_images_take_one_channel(tmp_path: Path) -> None:
    digits = open_source("mnist", root=tmp_path)
    quick = packed(digits, 8)
    assert packed_file(digits, 8).stat().st_size < 5000 * (64 + 4) + 2000
    assert torch.equal(quick.images("test", "4", [7, 3], 8), digits.images("test", "4", [7, 3], 8))


def test_the_file_is_keyed_by_content_size_and_order(source: CountedSource, tmp_path: Path) -> None:
    class_folders(tmp_path / "two" / "animals", {"train/cat": 3, "train/dog": 2, "test/cat": 4})
    same = open_path(tmp_path / "two" / "animals")
    assert packed_file(same, 16) == packed_file(source, 16)
    assert packed_file(source, 17) != packed_file(source, 16)
    other = class_folders(tmp_path / "three" / "animals", {"train/cat": 3, "train/dog": 2, "test/cow": 4})
    assert packed_file(open_path(other), 16) != packed_file(source, 16)


def test_failed_packing_leaves_nothing(source: CountedSource) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(source, 16, progress=stop)
    assert list(packed_folder().iterdir()) == []
    assert packed(source, 16).images("train", "cat", [0], 16).any()


def _build_slowly(source: CountedSource, results: multiprocessing.SimpleQueue[bytes]) -> None:
    quick = packed(source, 16, progress=lambda _: time.sleep(0.1))
    results.put(quick.images("test", "cat", [0, 3], 16).numpy().tobytes())


def test_two_processes_may_build_at_once(source: CountedSource) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    both = [context.Process(target=_build_slowly, args=(source, results)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout=60)
    expected = source.images("test", "cat", [0, 3], 16).numpy().tobytes()
    assert [process.exitcode for process in both] == [0, 0]
    assert [results.get(), results.get()] == [expected, expected]
    assert len(list(packed_folder().iterdir())) == 1


def test_a_full_disk_is_said_before_anything_is_written(
    source: CountedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full:
        free = 10

    monkeypatch.setattr(packing.shutil, "disk_usage", lambda _: Full)
    with pytest.raises(ClCnapsError, match=r"packing animals takes .* CL_CNAPS_CACHE"):
        packed(source, 16)


def test_clean_removes_one_source_or_all(source: CountedSource, tmp_path: Path) -> None:
    packed(source, 16)
    packed(source, 8)
    cars = open_path(class_folders(tmp_path / "cars", {"vw": 1}))
    packed(cars, 8)
    with pytest.raises(MissingDataError, match="no images of folder:boats are packed"):
        clean("folder:boats")
    assert clean(f"folder:{tmp_path / 'cars'}")[0] == 1
    kept: PackedSource = packed(cars, 8)
    files, freed = clean("animals")
    assert files == 2
    assert freed > 9 * 3 * 16 * 16
    assert kept.images("all", "vw", [0], 8).any()
    assert clean()[0] >= 1
    assert list(packed_folder().iterdir()) == []
    assert clean() == (0, 0)
