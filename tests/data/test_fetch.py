from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from torchvision import datasets

from cl_cnaps.data import fetch as archives
from cl_cnaps.data import open_source
from cl_cnaps.data.fetch import fetch, unpack
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError

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
def test_archive_names_that_lead_out(tmp_path: Path, name: str, kind: str) -> None:
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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that is served, and its address."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.fixture
def fashion(site: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Fashion-MNIST of 20 images on the server; returns the served folder."""
    folder, address = site
    resources = []
    for part in ("train", "t10k"):
        pixels = struct.pack(">4I", 0x803, 10, 28, 28) + bytes(range(10)) * 784
        labels = struct.pack(">2I", 0x801, 10) + bytes(range(10))
        for kind, data in (("images-idx3", pixels), ("labels-idx1", labels)):
            file = folder / f"{part}-{kind}-ubyte.gz"
            file.write_bytes(gzip.compress(data))
            resources.append((file.name, md5(file.read_bytes())))
    monkeypatch.setattr(datasets.FashionMNIST, "resources", resources)
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [address])
    return folder


def test_a_set_is_fetched_whole_and_opens(fashion: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert fetch("fashion-mnist", root) == root / "FashionMNIST"
    assert [path.name for path in root.iterdir()] == ["FashionMNIST"]
    source = open_source("fashion-mnist", root=root)
    assert source.classes("train")[0] == "T-shirt/top"
    assert datasets.FashionMNIST(root, train=False).data.shape == (10, 28, 28)  # torchvision finds it too


def test_opening_with_download_fetches_what_is_missing(fashion: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="or run: cl-cnaps data fetch fashion-mnist"):
        open_source("fashion-mnist", root=tmp_path / "root")
    assert open_source("fashion-mnist", root=tmp_path / "root", download=True).count("test", "Bag") == 1


def test_a_corrupted_file_is_refused_and_nothing_is_left(fashion: Path, tmp_path: Path) -> None:
    file = fashion / "t10k-labels-idx1-ubyte.gz"  # the last one: the others arrive well
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    root = tmp_path / "root"
    with pytest.raises(MissingDataError, match=r"t10k-labels-idx1-ubyte\.gz: its checksum is wrong"):
        fetch("fashion-mnist", root)
    assert list(root.iterdir()) == []


def test_the_next_mirror_is_tried(
    fashion: Path, site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.FashionMNIST, "mirrors", [f"{site[1]}gone/", site[1]])
    assert fetch("fashion-mnist", tmp_path / "root").is_dir()


def test_missing_download(fashion: Path, tmp_path: Path) -> None:
    (fashion / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(MissingDataError, match=r"http://127.*train-images-idx3-ubyte\.gz: HTTP Error 404"):
        fetch("fashion-mnist", tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []


def test_what_is_there_is_never_overwritten(fashion: Path, tmp_path: Path) -> None:
    (tmp_path / "root" / "FashionMNIST").mkdir(parents=True)
    with pytest.raises(ClCnapsError, match="FashionMNIST exists, so fashion-mnist was not fetched"):
        fetch("fashion-mnist", tmp_path / "root")


def serve_tar(site: tuple[Path, str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CIFAR-10 of one file under this name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.size = 4
        archive.addfile(info, io.BytesIO(b"data"))
    (site[0] / "cifar.tar.gz").write_bytes(buffer.getvalue())
    monkeypatch.setattr(datasets.CIFAR10, "url", f"{site[1]}cifar.tar.gz")
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5(buffer.getvalue()))


def test_an_archive_that_brings_its_folder(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_tar(site, "cifar-10-batches-py/data_batch_1", monkeypatch)
    fetch("cifar10", tmp_path / "root")
    files = [path.relative_to(tmp_path / "root").as_posix() for path in (tmp_path / "root").rglob("*")]
    assert sorted(files) == ["cifar-10-batches-py", "cifar-10-batches-py/data_batch_1"]


def test_fetched_archive_that_leads_out(
    site: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_tar(site, "../../escaped", monkeypatch)
    with pytest.raises(BadInputError, match="cannot be the name of a file"):
        fetch("cifar10", tmp_path / "root")
    assert list((tmp_path / "root").iterdir()) == []
    assert not list(tmp_path.rglob("escaped"))


def test_what_cannot_be_fetched_says_what_can(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"mscoco cannot be fetched.*mnist, fashion-mnist, cifar10"):
        fetch("mscoco", tmp_path)


def test_every_download_has_an_address_and_a_checksum() -> None:
    from cl_cnaps.data.catalog import CATALOG
    from cl_cnaps.data.fetch import DOWNLOADS

    assert set(DOWNLOADS) == {known.name for known in CATALOG.values() if known.fetchable}
    for of in DOWNLOADS.values():
        for file in of().files:
            assert len(file.md5) == 32
            assert all(url.startswith("http") and url.endswith(file.file_name) for url in file.urls)
