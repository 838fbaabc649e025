"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a small file under a temporary name beside its own, then move it into place."""
    with partial_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved there if the block ends well and removed otherwise."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def partial_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A temporary folder in `parent`, removed at the end with whatever was not moved out of it."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{prefix}.", suffix=".partial", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
