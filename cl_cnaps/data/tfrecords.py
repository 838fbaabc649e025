"""TFRecord files without TensorFlow: a frame of length and checksums around each record, read at any offset.

A record is its length (8 bytes, little-endian), the length's masked CRC-32C, the data, and the data's masked
CRC-32C.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np

from cl_cnaps.data.digests import digest_of, version_of
from cl_cnaps.data.row_files import keep_array, read_array
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.paths import cache_root

MAX_OPEN = 32
"""Files a reader keeps open: half of the lowest limit in use (64)."""

_HEAD, _TAIL = struct.Struct("<QI"), struct.Struct("<I")
SMALLEST_RECORD = _HEAD.size + _TAIL.size
"""Bytes of a record without data."""

_KEPT_INDEX = 256  # a shorter file is scanned faster than its index is found


def write_records(file: Path, records: Iterable[bytes]) -> int:
    """Write a file of records; returns how many."""
    count = 0
    with file.open("wb") as out:
        for record in records:
            length = struct.pack("<Q", len(record))
            out.write(length + _TAIL.pack(_masked_crc(length)) + record + _TAIL.pack(_masked_crc(record)))
            count += 1
    return count


def record_index(file: Path) -> np.ndarray:
    """Offset and stored data checksum of each record: int64, N x 2. Reads headers only.

    The index of a long file is kept in the cache folder, so that later processes read it instead of scanning.
    """
    try:
        status = file.stat()
    except OSError as error:
        raise MissingDataError(f"{file} cannot be read ({error.strerror})") from error
    key = digest_of([str(file.resolve()), version_of(status)])
    kept = index_folder() / f"{key[:32]}.rows"
    if (index := read_array(kept, key)) is not None:
        return index
    index = _scan(file, status.st_size)
    if len(index) >= _KEPT_INDEX:
        keep_array(kept, key, index)
    return index


def index_folder() -> Path:
    """Where indexes of long files are kept."""
    return cache_root() / "record-indexes"


class RecordReader:
    """Reads records by file and offset, at most `max_open` files open; usable after fork and pickling."""

    def __init__(self, max_open: int = MAX_OPEN) -> None:
        self._max_open = max_open
        self._forget()

    def __getstate__(self) -> dict[str, int]:
        return {"_max_open": self._max_open}

    def __setstate__(self, state: dict[str, int]) -> None:
        self._max_open = state["_max_open"]
        self._forget()

    def read(self, file: Path, offset: int) -> bytes:
        """The record at an offset, both checksums verified."""
        if self._owner != os.getpid():
            self._forget()  # after a fork: handles share their position, and the lock may have been held
        with self._lock:
            handle = self._handle(file)
            handle.seek(offset)
            length = _length(handle.read(_HEAD.size), file, offset)
            if length > os.fstat(handle.fileno()).st_size - offset:
                raise BadInputError(f"{file}: record at byte {offset} is truncated")
            data, tail = handle.read(length), handle.read(_TAIL.size)
        if len(data) != length or len(tail) != _TAIL.size:
            raise BadInputError(f"{file}: record at byte {offset} is truncated")
        if _TAIL.unpack(tail)[0] != _masked_crc(data):
            raise BadInputError(f"{file}: record at byte {offset} is corrupt (its data checksum is wrong)")
        return data

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[Path, BinaryIO] = OrderedDict()

    def _handle(self, file: Path) -> BinaryIO:
        if file in self._open:
            self._open.move_to_end(file)
            return self._open[file]
        while len(self._open) >= self._max_open:
            self._open.popitem(last=False)[1].close()
        try:
            self._open[file] = file.open("rb")
        except OSError as error:
            raise MissingDataError(f"{file} cannot be opened ({error.strerror})") from error
        return self._open[file]


def _scan(file: Path, size: int) -> np.ndarray:
    rows: list[tuple[int, int]] = []
    offset = 0
    with file.open("rb") as handle:
        while offset < size:
            handle.seek(offset)
            length = _length(handle.read(_HEAD.size), file, offset)
            end = offset + _HEAD.size + length + _TAIL.size
            if end > size:
                raise BadInputError(
                    f"{file}: record at byte {offset} is truncated ({end - size:,} bytes are missing)"
                )
            handle.seek(end - _TAIL.size)
            rows.append((offset, _TAIL.unpack(handle.read(_TAIL.size))[0]))
            offset = end
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _length(head: bytes, file: Path, offset: int) -> int:
    if len(head) != _HEAD.size:
        raise BadInputError(f"{file}: record at byte {offset} is truncated")
    length, checksum = _HEAD.unpack(head)
    if checksum != _masked_crc(head[:8]):
        raise BadInputError(f"{file}: record at byte {offset} is corrupt (its length checksum is wrong)")
    return int(length)


def _masked_crc(data: bytes) -> int:
    """TensorFlow's masking: a checksum stored beside data must not be the checksum of data that holds it."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
