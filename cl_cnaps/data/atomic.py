"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cl_cnaps.errors import ClCnapsError


def write_text(path: Path, text: str) -> None:
    """Write a small file under a temporary name beside its own, then move it into place."""
    with partial_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; moved to `path` if the block ends well, removed otherwise."""
    partial = _beside(path.parent, path.name)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def partial_folder(parent: Path, name: str) -> Iterator[Path]:
    """A new hidden folder in `parent`; removed at the end with whatever was not moved out of it."""
    folder = _beside(parent, name)
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless they are there; where that fails, say so as a person is told."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClCnapsError(f"{folder.parent} cannot be written to ({error.strerror})") from error


def _beside(parent: Path, name: str) -> Path:
    return parent / f".{name}.{secrets.token_hex(6)}.partial"
