"""Damage to anything in the cache changes no number: it is found, named in a line, and made again."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from data.pictures import class_folders, file_bytes, picture

from cl_cnaps.data import cache, open_source, packed
from cl_cnaps.data.cache import keep_array, new_rows, read_array
from cl_cnaps.data.packing import packed_file
from cl_cnaps.data.records import index_folder, record_index, write_records
from cl_cnaps.data.source import CountedSource
from cl_cnaps.features.kept import read_kept, write_kept

Damage = Callable[[bytes], bytes]


def flipped(at: float) -> Damage:
    def flip(content: bytes) -> bytes:
        place = int(at * (len(content) - 1))
        return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]

    return flip


DAMAGES: dict[str, Damage] = {
    "zeroed": lambda content: bytes(len(content)),
    "rows zeroed": lambda content: content[:1024] + bytes(len(content) - 1024),
    "cut short": lambda content: content[:-100],
    "cut to the header": lambda content: content[:1024],
    "emptied": lambda _: b"",
    "longer": lambda content: content + b"\0",
    "other bytes": lambda content: random.Random(0).randbytes(len(content)),
    "a bit of the header": flipped(0.001),
    "a bit in the middle": flipped(0.5),
    "the last bit": flipped(1.0),
    "a saved array": lambda content: b"\x93NUMPY\x01\x00" + content,
}
damages = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


@pytest.fixture
def source(tmp_path: Path) -> CountedSource:
    return open_source(f"folder:{class_folders(tmp_path / 'animals', {'cat': 3, 'dog': 2})}")


@damages
def test_packed_images(source: CountedSource, damage: Damage, caplog: pytest.LogCaptureFixture) -> None:
    expected = source.images("all", "cat", [2, 0, 1], 16)
    packed(source, 16)
    assert lines(caplog) == []
    file = packed_file(source, 16)
    file.write_bytes(damage(file.read_bytes()))
    for name, wanted in (("cat", expected), ("dog", source.images("all", "dog", [0, 1], 16))):
        indices = [2, 0, 1] if name == "cat" else [0, 1]
        assert torch.equal(packed(source, 16).images("all", name, indices, 16), wanted)
    (line,) = lines(caplog)
    assert str(file) in line
    assert torch.equal(packed(source, 16).images("all", "cat", [2, 0, 1], 16), expected)
    assert lines(caplog) == []


@damages
def test_packed_images_that_are_damaged_while_in_use(source: CountedSource, damage: Damage) -> None:
    quick = packed(source, 16)
    file = packed_file(source, 16)
    content = damage(file.read_bytes())
    with file.open("r+b") as opened:  # the same file, as a failing disk would
        opened.truncate(len(content))
        opened.write(content)
    assert torch.equal(quick.images("all", "dog", [1, 0], 16), source.images("all", "dog", [1, 0], 16))
    assert torch.equal(quick.images("all", "cat", [0, 1], 16), source.images("all", "cat", [0, 1], 16))


def test_packed_images_of_another_source_under_its_name(tmp_path: Path, source: CountedSource) -> None:
    other = open_source(f"folder:{class_folders(tmp_path / 'two', {'dog': 3, 'cat': 2})}")
    packed(source, 16), packed(other, 16)
    packed_file(other, 16).replace(packed_file(source, 16))
    assert torch.equal(packed(source, 16).images("all", "cat", [0], 16), source.images("all", "cat", [0], 16))


@damages
def test_kept_features(tmp_path: Path, damage: Damage) -> None:
    file, features = tmp_path / "features" / "batch.rows", torch.randn(6, 40)
    write_kept(file, features)
    found = read_kept(file, 6)
    assert found is not None and torch.equal(found, features)
    assert read_kept(file, 5) is None
    write_kept(file, features)
    file.write_bytes(damage(file.read_bytes()))
    assert read_kept(file, 6) is None


def test_kept_features_that_do_not_fit(tmp_path: Path) -> None:
    one, two = tmp_path / "features" / "one.rows", tmp_path / "features" / "two.rows"
    write_kept(one, torch.randn(6, 40))
    one.replace(two)
    assert read_kept(two, 6) is None
    np.save(tmp_path / "x.npy", np.zeros((6, 3), np.float32))
    (tmp_path / "x.npy").replace(one)
    assert read_kept(one, 6) is None


@damages
def test_indexes_of_records(tmp_path: Path, damage: Damage, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "0.tfrecords"
    write_records(file, (bytes([number % 256]) * 3 for number in range(300)))
    expected = record_index(file).tolist()
    (kept,) = index_folder().iterdir()
    kept.write_bytes(damage(kept.read_bytes()))
    assert record_index(file).tolist() == expected
    assert len(lines(caplog)) == 1
    assert record_index(file).tolist() == expected
    assert lines(caplog) == []


@damages
def test_remembered_digests(source: CountedSource, damage: Damage, caplog: pytest.LogCaptureFixture) -> None:
    digest = source.digest()
    (note,) = cache.digests_folder().iterdir()
    note.write_bytes(damage(note.read_bytes()))
    assert source.digest() == digest
    assert len(lines(caplog)) == 1


def test_image_changed_under_its_old_time(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "animals", {"cat": 1, "dog": 1}, "bmp")
    before = open_source(f"folder:{folder}").digest()
    file = folder / "cat" / "0.bmp"
    status = file.stat()
    file.write_bytes(file_bytes(picture(99), "BMP"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert open_source(f"folder:{folder}").digest() != before


def test_every_single_bit_of_a_cached_array_counts(tmp_path: Path) -> None:
    file, array = tmp_path / "x.rows", np.arange(6, dtype=np.int64).reshape(3, 2)
    keep_array(file, "key", array)
    content = file.read_bytes()
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        assert read_array(file, "key") is None, place
    file.write_bytes(content)
    assert (read_array(file, "key") == array).all()
    assert read_array(file, "another key") is None


def test_rows_that_were_not_all_written_make_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="1 rows were written"),
        new_rows(tmp_path / "x.rows", "key", np.dtype(np.uint8), (2, 3)) as append,
    ):
        append(np.zeros((1, 3), np.uint8))
    assert list(tmp_path.glob("*x.rows*")) == []


@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling link"])
def test_packed_file_that_is_no_file(source: CountedSource, kind: str) -> None:
    file = packed_file(source, 8)
    file.parent.mkdir(parents=True)
    if kind == "folder":
        (file / "x").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("nowhere")
    found = packed(source, 8).images("all", "cat", [1], 8)
    assert torch.equal(found, source.images("all", "cat", [1], 8))
