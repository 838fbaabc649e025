"""What is kept in the cache, every row checked when it is read: damage is found, never taken for numbers.

A file has a header (its checksum, then JSON: form, key, type, shape and the checksum of the table at the end), the
rows, and a table with the CRC-32C of each row. Rows are read, not mapped: a file that is cut short while in use is an
error here, and a crash of the process under a map.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import google_crc32c
import numpy as np

from cl_cnaps.data.atomic import partial_file
from cl_cnaps.errors import escaped
from cl_cnaps.paths import cache_root

_log = logging.getLogger(__name__)


def digest_of(rows: Iterable[object]) -> str:
    """Digest of a sequence of rows, each anything that prints the same everywhere."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row!r}\n".encode())
    return digest.hexdigest()


def remembered(path: Path, signature: str | None, work_out: Callable[[], str]) -> str:
    """The digest of what is at `path`, worked out only if `signature` changed since the last time.

    Without a signature the digest is cheap and always worked out.
    """
    if signature is None:
        return work_out()
    note = digests_folder() / f"{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]}.rows"
    known = read_array(note, signature, may_change=True)
    if known is not None:
        return known.tobytes().hex()
    digest = work_out()
    keep_array(note, signature, np.frombuffer(bytes.fromhex(digest), np.uint8))
    return digest


def version_of(status: os.stat_result) -> tuple[int, int, int]:
    """Return what changes with a file's content: even a tool that sets back the time of a change cannot hide it."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def digests_folder() -> Path:
    """Where digests of folders are remembered."""
    return cache_root() / "digests"


def index_folder() -> Path:
    """Where indexes of long record files are kept."""
    return cache_root() / "record-indexes"


_FORM = "cl-cnaps rows 1"
_HEADER = 1024  # bytes, so that rows begin at the same offset in every file


class DamagedRowsError(Exception):
    """A row is not what was written; the file was removed, to be made again."""


class OtherKeyError(ValueError):
    """A file is whole and was written for another key."""


class RowFile:
    """The rows of one file; usable after a fork, and from several threads."""

    def __init__(self, path: Path, key: str) -> None:
        """Open a file that was written for `key`; raises ValueError where it does not fit."""
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ValueError("it is a folder, link, pipe or device")
        self.path = path
        self._file = path.open("rb", buffering=0)
        start = self._read(0, _HEADER)
        if len(start) < _HEADER or _checksum(start[4:]) != int.from_bytes(start[:4], "little"):
            raise ValueError("its header is damaged")
        header = json.loads(start[4:])
        if (header["form"], header["key"]) != (_FORM, key):
            raise OtherKeyError("it was made for something else")
        self.shape: tuple[int, ...] = tuple(header["shape"])
        self.dtype = np.dtype(header["dtype"])
        self._row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        end = _HEADER + self.shape[0] * self._row_bytes
        if os.fstat(self._file.fileno()).st_size != end + 4 * self.shape[0]:
            raise ValueError("it has another size than its header names")
        table = self._read(end, 4 * self.shape[0])
        if _checksum(table) != header["table"]:
            raise ValueError("its table of checksums is damaged")
        self._checksums = np.frombuffer(table, "<u4")

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return copies of the rows at these indices; a damaged one removes the file and raises."""
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        for index, row in enumerate(rows.tolist()):
            data = self._read(_HEADER + row * self._row_bytes, self._row_bytes)
            if len(data) != self._row_bytes or _checksum(data) != self._checksums[row]:
                _discard(self.path, f"row {row} is damaged")
                raise DamagedRowsError(str(self.path))
            found[index] = np.frombuffer(data, self.dtype).reshape(self.shape[1:])
        return found

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, offset)


def open_rows(path: Path, key: str, *, may_change: bool = False) -> RowFile | None:
    """Open the rows that were written for `key`; None if there are none. A file that does not fit is removed.

    Where a key `may_change` under the same name, that is no damage, and no line is logged.
    """
    try:
        return RowFile(path, key)
    except FileNotFoundError:
        return None
    except OtherKeyError as error:
        if not may_change:
            _discard(path, str(error))
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _discard(path, str(error))
        return None


@contextmanager
def new_rows(
    path: Path, key: str, dtype: np.dtype, shape: tuple[int, ...]
) -> Iterator[Callable[[np.ndarray], None]]:
    """Yield a function that appends rows to a file, which appears when it is whole."""
    checksums: list[int] = []
    with partial_file(path, durable=False) as partial, partial.open("wb") as file:
        file.seek(_HEADER)

        def append(rows: np.ndarray) -> None:
            for row in rows.astype(dtype, copy=False):
                data = row.tobytes()
                checksums.append(_checksum(data))
                file.write(data)

        yield append
        if len(checksums) != shape[0]:
            raise ValueError(f"{len(checksums)} rows were written to {path}, not {shape[0]}")
        table = np.array(checksums, "<u4").tobytes()
        file.write(table)
        header = {
            "form": _FORM,
            "key": key,
            "dtype": dtype.str,
            "shape": list(shape),
            "table": _checksum(table),
        }
        text = json.dumps(header).encode().ljust(_HEADER - 4)
        file.seek(0)
        file.write(_checksum(text).to_bytes(4, "little") + text)


def read_array(path: Path, key: str, *, may_change: bool = False) -> np.ndarray | None:
    """Return a whole array that was kept for `key`; None if there is none or it is damaged."""
    rows = open_rows(path, key, may_change=may_change)
    try:
        return None if rows is None else rows.read(np.zeros(1, np.int64))[0]
    except DamagedRowsError:
        return None


def keep_array(path: Path, key: str, array: np.ndarray) -> None:
    """Keep a whole array for `key`. Where the cache cannot be written only time is lost, later."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_rows(path, key, array.dtype, (1, *array.shape)) as append:
            append(array[None])


def _discard(path: Path, problem: str) -> None:
    _log.warning("%s", escaped(f"{path} does not fit ({problem}): it is made again"))
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _checksum(data: bytes) -> int:
    return int(google_crc32c.value(data))
