"""A folder of files, or a zip of one read in place: the same few questions asked of both."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from cl_cnaps.errors import BadInputError, MissingDataError

MAX_ENTRY_BYTES = 2**31
"""Largest file read from a zip."""

SUSPICIOUS_BYTES, MAX_RATIO = 2**26, 200
"""A zip's file that grows beyond the first when unpacked may be at most so many times its packed size."""


class Tree(Protocol):
    """Files by their path below the tree's root, with forward slashes."""

    @property
    def path(self) -> Path:
        """The folder or the zip."""

    def names(self) -> list[str]:
        """Every file, in no particular order."""

    def read(self, name: str) -> bytes:
        """A file's content."""

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file, at most so many."""

    def where(self, name: str) -> str:
        """The file as a person would look for it."""

    def checksums(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """Size and CRC-32 of each file; the same for a folder and a zip of it."""

    def signature(self) -> str | None:
        """Changes whenever checksums may have; None where these are cheap themselves."""


def open_tree(path: Path) -> Tree:
    """The files of a folder or of a zip."""
    if path.is_dir():
        return DirectoryTree(path)
    if not path.exists():
        raise MissingDataError(f"{path} does not exist: a folder, or a zip of one, was expected there")
    if not zipfile.is_zipfile(path):
        raise BadInputError(f"{path} is neither a folder nor a readable zip file")
    return ZipTree(path)


class DirectoryTree:
    """The files of a folder, links followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Every file below the folder."""
        found: list[str] = []
        for folder, subfolders, files in os.walk(self.path, followlinks=True):
            subfolders[:] = [name for name in sorted(subfolders) if not _leads_back(Path(folder, name))]
            below = Path(folder).relative_to(self.path).as_posix()
            found.extend(file if below == "." else f"{below}/{file}" for file in files)
        return found

    def read(self, name: str) -> bytes:
        """A file's content."""
        return self.head(name, -1)

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file; all of them if `size` is negative."""
        try:
            with (self.path / name).open("rb") as file:
                return file.read(size)
        except OSError as error:
            raise MissingDataError(f"{self.where(name)} cannot be read ({error.strerror})") from error

    def where(self, name: str) -> str:
        """The file's path."""
        return str(self.path / name)

    def checksums(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """Size and CRC-32 of each file, from its whole content."""
        contents = (self.read(name) for name in names)
        return [(len(content), zlib.crc32(content)) for content in contents]

    def signature(self) -> str | None:
        """Names, sizes and times of change of all files."""
        crc = 0
        for name in sorted(self.names()):
            status = (self.path / name).stat()
            crc = zlib.crc32(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(), crc)
        return f"{crc:08x}"


def _leads_back(folder: Path) -> bool:
    """Whether a folder is a link to one that it lies in: following it would never end."""
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


class ZipTree:
    """The files in a zip. Each process opens the zip for itself: a shared handle would share its position."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: tuple[int, zipfile.ZipFile] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "_opened": None}

    def names(self) -> list[str]:
        """Every file in the zip."""
        # A zip that was added to may have a name twice; its last entry is the one that is read.
        return list(dict.fromkeys(e.filename for e in self._open().infolist() if not e.is_dir()))

    def read(self, name: str) -> bytes:
        """A file's content, its CRC checked; refused if it unpacks to suspiciously much."""
        return self.head(name, -1)

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file; all of them, their CRC checked, if `size` is negative."""
        archive = self._open()
        try:
            entry = archive.getinfo(name)
            packed = max(entry.compress_size, 1)
            if entry.file_size > MAX_ENTRY_BYTES or (
                entry.file_size > SUSPICIOUS_BYTES and entry.file_size > MAX_RATIO * packed
            ):
                raise BadInputError(
                    f"{self.where(name)} unpacks from {packed:,} to {entry.file_size:,} bytes: "
                    f"refused as a zip bomb"
                )
            with archive.open(entry) as file:
                return file.read(size)
        except KeyError:
            raise MissingDataError(f"{self.where(name)} does not exist") from None
        # RuntimeError: encrypted, or (as NotImplementedError) a compression this Python lacks.
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
            raise BadInputError(f"{self.where(name)} cannot be read: {error}") from error

    def where(self, name: str) -> str:
        """The zip's path and the file's name in it."""
        return f"{self.path}:{name}"

    def checksums(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """Size and CRC-32 of each file, as the zip's own table of contents has them."""
        archive = self._open()
        entries = (archive.getinfo(name) for name in names)
        return [(entry.file_size, entry.CRC) for entry in entries]

    def signature(self) -> str | None:
        """None: the checksums are in the zip's table of contents."""
        return None

    def _open(self) -> zipfile.ZipFile:
        # Two threads that come here at once may each open the zip; either handle will do.
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            try:
                opened = (os.getpid(), zipfile.ZipFile(self.path))
            except (OSError, zipfile.BadZipFile) as error:
                raise BadInputError(f"{self.path} cannot be opened as a zip file: {error}") from error
            self._opened = opened
        return opened[1]
