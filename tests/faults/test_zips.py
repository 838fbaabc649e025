"""Zips that lie, are damaged, or come from programs of another age."""

from __future__ import annotations

import resource
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from data.pictures import class_folders, file_bytes, picture, zipped
from faults.damage import hunt

from cl_cnaps.data import open_source
from cl_cnaps.data.trees import ZipTree, open_tree
from cl_cnaps.data.verify import verify
from cl_cnaps.errors import BadInputError, ClCnapsError


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    return zipped(class_folders(tmp_path / "set", {"cat": 2, "dog": 2}), tmp_path / "x.zip").read_bytes()


def lying_zip(file: Path, real: int, stated: int) -> Path:
    """A zip with an entry of `real` zeros of which its directory states `stated`."""
    packer = zlib.compressobj(9, wbits=-15)
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(real >> 20)) + packer.flush()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("cat/0.png", packed)
    content = bytearray(file.read_bytes())
    for signature, at in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        start = content.index(signature)
        content[start + 8 + at : start + 10 + at] = struct.pack("<H", 8)
        content[start + 22 + at : start + 26 + at] = struct.pack("<I", stated)
    file.write_bytes(content)
    return file


def test_a_zip_that_lies_about_sizes_takes_no_memory(tmp_path: Path) -> None:
    tree = open_tree(lying_zip(tmp_path / "x.zip", 2**30, 1000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadInputError, match=r"x\.zip:cat/0\.png: cannot be read"):
        tree.read("cat/0.png")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_zip_entry_larger_than_the_zip(tmp_path: Path) -> None:
    file = lying_zip(tmp_path / "x.zip", 2**20, 2**28)
    content = file.read_bytes()
    start = content.index(b"PK\x01\x02")
    file.write_bytes(content[: start + 20] + struct.pack("<I", 2**31) + content[start + 24 :])
    with pytest.raises(BadInputError, match="refused as a zip bomb"):
        open_tree(file).read("cat/0.png")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_unpack_without_bounds_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
        archive.writestr("cat/0.png", bytes(1000))
    with pytest.raises(BadInputError, match="use deflate"):
        ZipTree(tmp_path / "x.zip").read("cat/0.png")


def test_a_name_of_thousands_of_digits(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(f"cat/{'9' * 5000}.png", file_bytes(picture(1)))
        archive.writestr("cat/2.png", b"damaged")
        archive.writestr("dog/10.png", file_bytes(picture(2)))
    result = verify(open_source(f"folder:{tmp_path / 'x.zip'}"))
    assert (result.images, len(result.bad)) == (2, 1)


def test_a_version_of_the_format_that_does_not_exist(tmp_path: Path, whole: bytes) -> None:
    content = bytearray(whole)
    start = content.index(b"PK\x01\x02")
    content[start + 6] = 99
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(BadInputError, match=r"x\.zip: cannot be opened as a zip file \(zip file version"):
        open_source(f"folder:{tmp_path / 'x.zip'}")


def test_damaged_zips_are_read_or_refused(tmp_path: Path, whole: bytes) -> None:
    def check(content: bytes) -> None:
        _verify_or_refuse(tmp_path / "x.zip", content)

    hunt("zip", whole, check)
    hunt("zip", whole, check, start=whole.index(b"PK\x01\x02"))  # the directory, which is believed


def _verify_or_refuse(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        source = open_source(f"folder:{file}")
        source.digest()
        bad = verify(source).bad
    except ClCnapsError as error:
        bad = (str(error),)
    assert all("x.zip" in line and "\n" not in line for line in bad)
