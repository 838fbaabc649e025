from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from cl_cnaps.data import archives
from cl_cnaps.data.archives import unpack
from cl_cnaps.errors import BadInputError

EVIL = ["../out.txt", "a/../../out.txt", "/tmp/out.txt", "C:/out.txt", "..\\out.txt", "a\\b.txt"]


def tar_of(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file


def zip_of(file: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file


def test_archives_are_unpacked(tmp_path: Path) -> None:
    unpack(zip_of(tmp_path / "a.zip", **{"x/1.txt": b"one", "y/": b""}), tmp_path / "zip")
    unpack(tar_of(tmp_path / "a.tar.gz", (tarfile.TarInfo("x/1.txt"), b"one")), tmp_path / "tar")
    (tmp_path / "idx.gz").write_bytes(gzip.compress(b"one"))
    unpack(tmp_path / "idx.gz", tmp_path / "gz")
    assert (tmp_path / "zip/x/1.txt").read_bytes() == b"one"
    assert (tmp_path / "tar/x/1.txt").read_bytes() == b"one"
    assert (tmp_path / "gz/idx").read_bytes() == b"one"


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_names_that_lead_out_are_refused_before_anything_is_written(
    tmp_path: Path, name: str, kind: str
) -> None:
    file = tmp_path / f"evil.{kind}"
    if kind == "zip":
        zip_of(file, **{"good.txt": b"good", name: b"evil"})
    else:
        tar_of(file, (tarfile.TarInfo("good.txt"), b"good"), (tarfile.TarInfo(name), b"evil"))
    with pytest.raises(BadInputError, match="cannot be the name of a file"):
        unpack(file, tmp_path / "in" / "side")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(BadInputError, match="link is a link or device: refused"):
        unpack(tar_of(tmp_path / "a.tgz", (info, b"")), tmp_path / "x")


@pytest.mark.parametrize("kind", ["zip", "tgz", "gz"])
def test_bombs_are_refused(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_SMALL", 1000)
    zeros, file = bytes(3_000_000), tmp_path / f"bomb.{kind}"
    if kind == "zip":
        zip_of(file, big=zeros)
    elif kind == "tgz":
        tar_of(file, (tarfile.TarInfo("big"), zeros))
    else:
        file.write_bytes(gzip.compress(zeros))
    with pytest.raises(BadInputError, match="zip bomb"):
        unpack(file, tmp_path / "x")
    written = sum(path.stat().st_size for path in (tmp_path / "x").rglob("*") if path.is_file())
    assert written <= 100 * file.stat().st_size


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.gz"])
def test_damaged_archives_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8bnothing")
    with pytest.raises(BadInputError, match=f"{name}: damaged"):
        unpack(tmp_path / name, tmp_path / "x")
    (tmp_path / "a.rar").touch()
    with pytest.raises(BadInputError, match="not a kind of archive"):
        unpack(tmp_path / "a.rar", tmp_path / "x")
