"""Unpacking archives that came from elsewhere: nothing lands outside the folder or fills the disk."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from pathlib import Path
from typing import Protocol

from cl_cnaps.errors import BadInputError, foreign
from cl_cnaps.untrusted import below

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
