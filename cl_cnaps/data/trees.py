"""The files of a folder, or of a zip that is read without unpacking it, by the same few methods."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from cl_cnaps.data.cache import version_of
from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.paths import MAX_FILE_BYTES, read_file

MAX_FOLDERS = 1_000_000
"""Most folders that one source may have."""

MAX_PATHS = 32
"""Most paths that may lead to one folder: links between folders can make any number of them."""

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

    def size(self, name: str) -> int:
        """How many bytes a file has."""

    def where(self, name: str) -> str:
        """Where the file is, for messages."""

    def checksums(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """Size and CRC-32 of each file; the same for a folder and a zip of it."""

    def signature(self) -> str | None:
        """Changes whenever checksums may have; None where these are cheap themselves."""


def open_tree(path: Path) -> Tree:
    """The files of a folder or of a zip."""
    with foreign(str(path), "cannot be read"):
        if path.is_dir():
            return DirectoryTree(path)
        if not path.exists():
            raise MissingDataError(f"{path} does not exist: a folder, or a zip of one, was expected there")
        if not path.is_file() or not zipfile.is_zipfile(path):
            raise BadInputError(f"{path} is neither a folder nor a readable zip file")
        return ZipTree(path)


class DirectoryTree:
    """The files of a folder, links followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Every file below the folder; a folder that cannot be listed is an error, not empty."""
        found: list[str] = []
        folders: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
        paths: Counter[tuple[int, int]] = Counter()
        for visited, (below, above) in enumerate(folders):  # grows while it is walked
            if visited >= MAX_FOLDERS:
                raise BadInputError(f"{self.path} has more than {MAX_FOLDERS:,} folders, links followed")
            try:
                status = (self.path / below).stat()
                identity = (status.st_dev, status.st_ino)
                if identity in above:
                    continue  # a link to a folder that it lies in
                paths[identity] += 1
                if paths[identity] > MAX_PATHS:
                    raise BadInputError(
                        f"{self.path / below} is reached by more than {MAX_PATHS} paths: its folders are linked to "
                        "one another"
                    )
                with os.scandir(self.path / below) as entries:
                    for entry in entries:
                        name = f"{below}{entry.name}"
                        if _is_folder(entry):
                            folders.append((f"{name}/", above | {identity}))
                        else:
                            found.append(name)
            except OSError as error:
                raise MissingDataError(
                    f"the folder {self.path / below} cannot be read ({error.strerror}); make it readable or move it "
                    f"elsewhere"
                ) from error
        return found

    def read(self, name: str) -> bytes:
        """A file's content."""
        return read_file(self.path / name)

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file."""
        return read_file(self.path / name, size=size)

    def size(self, name: str) -> int:
        """How many bytes a file has."""
        with foreign(self.where(name), "cannot be read"):
            return (self.path / name).stat().st_size

    def where(self, name: str) -> str:
        """The file's path, on one line."""
        return str(self.path / name).replace("\n", "\\n")

    def checksums(self, names: Iterable[str]) -> list[tuple[int, int]]:
        """Size and CRC-32 of each file, from its whole content."""
        contents = (self.read(name) for name in names)
        return [(len(content), zlib.crc32(content)) for content in contents]

    def signature(self) -> str | None:
        """Names, sizes and times of change of all files."""
        crc = 0
        for name in sorted(self.names()):
            try:
                version: object = version_of((self.path / name).stat())
            except OSError:  # a link to nothing, which counts only if it is an image
                version = None
            crc = zlib.crc32(os.fsencode(f"{name}\0{version}\n"), crc)
        return f"{crc:08x}"


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself: a file that cannot be read
        return False


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
        return list(
            dict.fromkeys(e.filename for e in self._open().infolist() if not e.filename.endswith("/"))
        )

    def read(self, name: str) -> bytes:
        """A file's content, its CRC checked; refused if it unpacks to suspiciously much."""
        return self._read(name, MAX_FILE_BYTES)

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file."""
        return self._read(name, size)

    def _read(self, name: str, size: int) -> bytes:
        archive = self._open()
        try:
            entry = archive.getinfo(name)
        except KeyError:
            raise MissingDataError(f"{self.where(name)} does not exist") from None
        packed = max(min(entry.compress_size, self.path.stat().st_size), 1)
        if entry.file_size > MAX_FILE_BYTES or (
            entry.file_size > SUSPICIOUS_BYTES and entry.file_size > MAX_RATIO * packed
        ):
            raise BadInputError(
                f"{self.where(name)} unpacks from {packed:,} to {entry.file_size:,} bytes: refused as a zip bomb"
            )
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInputError(
                f"{self.where(name)} is packed by a method that is not read here: use deflate"
            )
        # Asked for so many bytes, and not for all, zipfile unpacks no more even if the zip's directory lies.
        with foreign(self.where(name), "cannot be read"), archive.open(entry) as file:
            content = file.read(min(size, entry.file_size))
        if len(content) < min(size, entry.file_size):
            raise BadInputError(f"{self.where(name)}: cannot be read (it is cut short)")
        return content

    def size(self, name: str) -> int:
        """How many bytes a file has, as the zip's own table of contents has it."""
        return self._open().getinfo(name).file_size

    def where(self, name: str) -> str:
        """The zip's path and the file's name in it."""
        return f"{self.path}:{name}".replace("\n", "\\n")

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
            with foreign(str(self.path), "cannot be opened as a zip file"):
                opened = (os.getpid(), zipfile.ZipFile(self.path))
            self._opened = opened
        return opened[1]
