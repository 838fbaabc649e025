"""Downloading a set into the data root: checksummed, safely unpacked, and whole or not there at all."""

from __future__ import annotations

import gzip
import socket
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.error import URLError

from cl_cnaps.data.atomic import partial_folder, sync, sync_tree
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.paths import below


@dataclass(frozen=True)
class Download:
    """One file of a set."""

    urls: tuple[str, ...]
    """Where it can be had; the next is tried when one fails."""

    md5: str
    folder: str = ""
    """Where it is unpacked, below the set's own folder."""

    kept: bool = False
    """Whether an archive stays after it is unpacked: only where torchvision looks for it."""

    @property
    def file_name(self) -> str:
        """Its name on disk."""
        return self.urls[0].rpartition("/")[2]


@dataclass(frozen=True)
class Downloads:
    """All files of a set, and the folder of the data root that they make."""

    folder: str
    files: tuple[Download, ...]
    within: bool = True
    """Whether files are unpacked inside the folder, or bring the folder with them."""


def _idx(kind: str) -> Downloads:
    from torchvision import datasets

    of = getattr(datasets, kind)
    files = [
        Download(tuple(mirror + file for mirror in of.mirrors), md5, "raw") for file, md5 in of.resources
    ]
    return Downloads(kind, tuple(files))


def _cifar(kind: str) -> Downloads:
    from torchvision import datasets

    of = getattr(datasets, kind)
    return Downloads(of.base_folder, (Download((of.url,), of.tgz_md5),), within=False)


def _omniglot() -> Downloads:
    from torchvision.datasets import Omniglot

    prefix = Omniglot.download_url_prefix
    files = [Download((f"{prefix}/{part}.zip",), md5, kept=True) for part, md5 in Omniglot.zips_md5.items()]
    return Downloads(Omniglot.folder, tuple(files))


def _dtd() -> Downloads:
    from torchvision.datasets import DTD

    return Downloads("dtd", (Download((DTD._URL,), DTD._MD5),))


def _flowers() -> Downloads:
    from torchvision.datasets import Flowers102

    prefix = Flowers102._download_url_prefix
    files = [Download((prefix + file,), md5) for file, md5 in Flowers102._file_dict.values()]
    return Downloads("flowers-102", tuple(files))


def _traffic_signs() -> Downloads:
    # torchvision has these inside a method of its GTSRB.
    prefix = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
    files = {
        "GTSRB-Training_fixed.zip": "513f3c79a4c5141765e10e952eaa2478",
        "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
        "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
    }
    return Downloads("gtsrb", tuple(Download((prefix + file,), md5) for file, md5 in files.items()))


DOWNLOADS: Mapping[str, Callable[[], Downloads]] = {
    "mnist": partial(_idx, "MNIST"),
    "fashion-mnist": partial(_idx, "FashionMNIST"),
    "cifar10": partial(_cifar, "CIFAR10"),
    "cifar100": partial(_cifar, "CIFAR100"),
    "omniglot": _omniglot,
    "dtd": _dtd,
    "vgg_flower": _flowers,
    "traffic_sign": _traffic_signs,
}
"""Name -> its downloads. torchvision's FGVC Aircraft is not among them: it has no checksum."""


MAX_BYTES = 64 * 2**30
"""Most that one archive may unpack to: more than any known set."""

MAX_RATIO = 100
"""Most that an archive may grow; images are packed already and hardly do."""

_SMALL = 2**26  # archives that unpack to less are no threat, whatever their ratio


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip, .tar, .tar.gz, .tgz or .gz into a folder; raises before anything unsafe is written.

    Only files and folders are unpacked: links, devices and names that lead out of the folder are refused.
    """
    with foreign(str(archive)):
        if archive.name.endswith(".zip"):
            _unpack_zip(archive, folder)
        elif archive.name.endswith((".tar", ".tar.gz", ".tgz")):
            _unpack_tar(archive, folder)
        elif archive.name.endswith(".gz"):
            with gzip.open(archive) as packed:
                _copy(packed, below(folder, archive.stem), _allowed(archive))
        else:
            raise BadInputError(f"{archive}: not a kind of archive that is unpacked here")


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
        _check_total(archive, sum(entry.file_size for entry in entries))
        targets = [_target(archive, folder, entry.filename) for entry in entries]
        for entry, target in zip(entries, targets, strict=True):
            with opened.open(entry) as packed:
                _copy(packed, target, entry.file_size)


def _unpack_tar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as opened:
        members = [member for member in opened.getmembers() if not member.isdir()]
        for member in members:
            if not member.isfile():
                raise BadInputError(f"{archive}: {member.name} is a link or device: refused")
        _check_total(archive, sum(member.size for member in members))
        targets = [_target(archive, folder, member.name) for member in members]
        for member, target in zip(members, targets, strict=True):
            packed = opened.extractfile(member)
            if packed is not None:
                _copy(packed, target, member.size)


def _check_total(archive: Path, size: int) -> None:
    if size > _allowed(archive):
        raise BadInputError(
            f"{archive} unpacks from {archive.stat().st_size:,} to {size:,} bytes: refused as a zip bomb"
        )


def _allowed(archive: Path) -> int:
    return min(MAX_BYTES, max(_SMALL, MAX_RATIO * archive.stat().st_size))


def _target(archive: Path, folder: Path, name: str) -> Path:
    try:
        return below(folder, name)
    except BadInputError as error:
        raise BadInputError(f"{archive}: {error}") from None


def _copy(packed: _Readable, target: Path, limit: int) -> None:
    """Write at most `limit` bytes: an archive's own statement of a size is not believed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        while chunk := packed.read(2**20):
            if out.tell() + len(chunk) > limit:
                raise BadInputError(f"{target.name} unpacks to more than it may: refused as a zip bomb")
            out.write(chunk)


_STALLED = 60.0  # seconds without a byte after which a download is given up
_ARCHIVES = (".gz", ".tgz", ".zip")


def fetch(name: str, root: Path) -> Path:
    """Download a set into the data root, in torchvision's layout and with its progress bar.

    Everything happens in a hidden folder of the data root, which gets its name at the end and is removed
    if anything fails.
    """
    if name not in DOWNLOADS:
        raise MissingDataError(
            f"{name} cannot be fetched: torchvision has no checksummed download of it. "
            f"What can be: {', '.join(DOWNLOADS)}"
        )
    downloads = DOWNLOADS[name]()
    target = root / downloads.folder
    if target.exists():
        raise ClCnapsError(f"{target} exists, so {name} was not fetched; remove or rename it first")
    try:
        with partial_folder(root, f"fetch-{name}") as partial, _timeout(_STALLED):
            base = partial / downloads.folder if downloads.within else partial
            for download in downloads.files:
                _download(name, download, base / download.folder)
            sync_tree(partial)
            (partial / downloads.folder).rename(target)
            sync(root)
    except OSError as error:
        if isinstance(error, ClCnapsError):
            raise
        raise ClCnapsError(f"{name} could not be fetched into {root}: {error}") from error
    return target


def _download(name: str, download: Download, folder: Path) -> None:
    from torchvision.datasets.utils import download_url

    file = folder / download.file_name
    failures: list[str] = []
    for url in download.urls:
        try:
            download_url(url, folder, filename=file.name, md5=download.md5)
            break
        except (URLError, OSError, RuntimeError) as error:
            # torchvision has one message for a missing and for a wrong file.
            wrong = isinstance(error, RuntimeError) and file.exists()
            failures.append(f"{url}: {'its checksum is wrong' if wrong else error}")
            file.unlink(missing_ok=True)
    else:
        raise MissingDataError(
            f"{name} could not be fetched, and nothing was kept: {'; '.join(failures)}. Try again later, or "
            f"get the set by other means and put it into the data root (see docs/data.md)"
        )
    if file.name.endswith(_ARCHIVES):
        unpack(file, folder)
        if not download.kept:
            file.unlink()


@contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    """torchvision's downloads take no timeout, and would wait for ever on a dead connection."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
