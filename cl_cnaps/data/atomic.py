"""Files and folders that appear whole or not at all, and locks for what several processes change.

What is being written has a hidden name beside its own, with the machine and process that write it. The next process
that writes to the folder removes what dead ones left.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from cl_cnaps.errors import BadInputError, ClCnapsError

_PARTIAL = re.compile(r"\..+?\.(?:(?P<machine>[0-9a-f]{6})-(?P<process>\d+)-)?[0-9a-f]{8,12}\.partial")
_FOREIGN_SECONDS = 86400.0
"""Age at which what another machine was writing counts as left by a dead process."""
_TRIES = 100


def write_text(path: Path, text: str) -> None:
    """Write a small file under a temporary name beside its own, then move it to its own name."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file under a temporary name beside its own, then move it; its folder is made if need be."""
    make_folder(path.parent)
    with partial_file(path) as partial:
        partial.write_bytes(content)


@contextmanager
def partial_file(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a name beside `path` to write to; moved to `path` if the block ends well, else removed.

    Readers see the old file or the new one. A `durable` file is on the disk when it gets its name. A folder, pipe or
    device is not replaced: the superuser could, and the system would have lost it.
    """
    partial = _beside(path.parent, path.name)
    try:
        with naming(path):
            if path.exists() and not path.is_file():
                raise BadInputError(f"{path} is a folder, pipe or device: choose another name")
            yield partial
            if durable:
                sync(partial)
            partial.replace(path)
            if durable:
                sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def partial_folder(parent: Path, name: str) -> Iterator[Path]:
    """Yield a new hidden folder in `parent`; removed at the end with whatever was not moved out of it."""
    folder = _beside(parent, name)
    make_folder(folder)
    try:
        with naming(parent / name):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def replace_folder(made: Path, target: Path) -> None:
    """Move the folder `made` to `target`, and whatever is there to `made`; readers find the old one or the new one.

    Where the system cannot exchange two folders in one step, the old one steps aside for a moment: `restore` brings it
    back after a kill.
    """
    for attempt in range(_TRIES):
        restore(target)
        try:
            made.rename(target)  # nothing there, or an empty folder
            break
        except OSError:
            if not target.is_dir() and attempt == _TRIES - 1:
                raise
        if target.is_dir():
            if exchange(made, target):
                break
            # What stepped aside for a process that another one was faster than would be in the way for ever.
            shutil.rmtree(_aside(target), ignore_errors=True)
            with suppress(OSError):  # another process was faster
                target.rename(_aside(target))
                made.rename(target)
                shutil.rmtree(_aside(target), ignore_errors=True)
                break
        time.sleep(0.01)
    else:
        raise ClCnapsError(f"{target} could not be replaced: other processes write to it all the time")
    sync(target.parent)


def restore(target: Path) -> bool:
    """Bring back a folder whose replacement was killed half-way; return whether there was one."""
    try:
        if not target.exists() and _aside(target).is_dir():
            _aside(target).rename(target)
            return True
    except OSError:  # another process was faster
        return True
    return False


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return whether the system can."""
    names = (os.fsencode(one), os.fsencode(other))
    with suppress(OSError, AttributeError):
        if sys.platform == "linux":
            here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
            return bool(ctypes.CDLL(None).renameat2(here, names[0], here, names[1], swap) == 0)
        if sys.platform == "darwin":
            return bool(ctypes.CDLL(None).renamex_np(*names, 2) == 0)  # RENAME_SWAP
    return False


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


def try_folder(folder: Path) -> None:
    """Refuse a folder that could not be written to later; nothing is left there."""
    above = next((one for one in (folder, *folder.absolute().parents) if one.exists()), folder)
    trial = _beside(above, "trial")
    try:
        if not above.is_dir():
            raise OSError(errno.ENOTDIR, f"{above} is not a folder")
        try:
            trial.write_bytes(bytes(4096))
            sync(trial)
        finally:
            trial.unlink(missing_ok=True)
    except OSError as error:
        raise ClCnapsError(f"{folder} cannot be written to ({error.strerror})") from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of a full disk, which do not name the file, the name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, ClCnapsError):
            error.filename = str(path)
        raise


def sync(path: Path) -> None:
    """Have the system write a file, or the names in a folder, to the disk."""
    if os.name != "posix" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path) -> None:
    """Bring every file below a folder, and their names, to the disk."""
    for below, _, files in os.walk(folder):
        for name in files:
            sync(Path(below) / name)
        sync(Path(below))


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


@functools.cache
def _machine() -> str:
    """Name the machine, and the container where processes are counted apart."""
    container = ""
    with suppress(OSError):
        container = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{platform.node()}{container}".encode()).hexdigest()[:6]


def _beside(parent: Path, name: str) -> Path:
    remove_leftovers(parent, os.getpid())
    return parent / f".{name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.partial"


@functools.cache
def remove_leftovers(folder: Path, _process: int) -> None:
    """Remove what dead processes were writing in a folder; once for each folder and process."""
    with suppress(OSError):
        for path in folder.iterdir():
            if (found := _PARTIAL.fullmatch(path.name)) and _is_dead(path, found):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _is_dead(path: Path, found: re.Match[str]) -> bool:
    with suppress(OSError):
        if found["machine"] != _machine():
            return time.time() - path.lstat().st_mtime > _FOREIGN_SECONDS
        try:
            os.kill(int(found["process"]), 0)
        except (ProcessLookupError, OverflowError):
            return True
    return False
