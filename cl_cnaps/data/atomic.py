"""Files and folders that appear whole or not at all, and locks for what several processes change."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from cl_cnaps.errors import ClCnapsError


def write_text(path: Path, text: str) -> None:
    """Write a small file under a temporary name beside its own, then move it to its own name."""
    with partial_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def partial_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a name beside `path` to write to; moved to `path` if the block ends well, else removed.

    Readers see the old file or the new one. A `durable` file is on the disk when it gets its name.
    """
    partial = _beside(path.parent, path.name)
    try:
        yield partial
        if durable:
            _sync(partial)
        partial.replace(path)
        if durable:
            _sync(path.parent)
    except OSError as error:
        if error.filename is None:  # a full disk does not name the file
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def partial_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new hidden folder in `parent`; removed at the end with whatever was not moved out of it."""
    folder = _beside(parent, name)
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock beside `path`, and hold it; a process that dies lets go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.parent / f".{path.name}.lock"):
        yield


def remove_partial(path: Path) -> None:
    """Remove what killed processes left of `path` half-written; to be called under its lock."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        leftover.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClCnapsError(f"{folder.parent} cannot be written to ({error.strerror})") from error


def _sync(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _beside(parent: Path, name: str) -> Path:
    return parent / f".{name}.{secrets.token_hex(6)}.partial"
