"""A folder of Meta-Dataset records: TFRecord files, one or a few per class, and dataset_spec.json; without TensorFlow.

A record is its length (8 bytes, little-endian), the length's masked CRC-32C, the data, and the data's masked CRC-32C.
The data is a `tf.train.Example`: Features (field 1) with map entries (field 1) of a key (1) and a Feature (2), which is
a BytesList (1) or an Int64List (3) of values (1). Nothing else of the format is needed here.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np
from PIL import Image

from cl_cnaps.data.cache import digest_of, index_folder, keep_array, read_array, remembered, version_of
from cl_cnaps.data.folders import natural
from cl_cnaps.data.registry import SPEC_FILE
from cl_cnaps.data.source import CountedSource, decode
from cl_cnaps.data.spec import PATTERNS, SPLITS, DatasetSpec, read_spec
from cl_cnaps.errors import BadInputError, MissingDataError

SPLIT_NAMES = dict(zip(SPLITS, ("train", "val", "test"), strict=True))


class RecordSource(CountedSource):
    """Classes of a specification, their images read from records one at a time.

    Splits are of classes, as in the specification: "train", "val", "test", without those that have no class.
    Where a class has several files (shards, or pools of training and test images) its images are those of all
    files, in the order of their names. Classes in superclasses are called superclass/class.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        self.spec: DatasetSpec = read_spec(path / SPEC_FILE)
        self._ids = {label: class_id for class_id, label in enumerate(class_labels(self.spec))}
        if len(self._ids) != len(self.spec.class_names):
            raise BadInputError(f"{path / SPEC_FILE}: two classes have the same name")
        labels = tuple(self._ids)
        counts = {
            SPLIT_NAMES[split]: {labels[i]: self.spec.images(i) for i in ids}
            for split, ids in self.spec.classes.items()
            if len(ids)
        }
        super().__init__(name or self.spec.name, str(path), counts)
        self._files = record_files(path, self.spec)
        for (
            class_id,
            files,
        ) in self._files.items():  # before anything is drawn from as many images as it names
            records = sum(file.stat().st_size for file in files) // SMALLEST_RECORD
            if self.spec.images(class_id) > records:
                raise BadInputError(
                    f"{path / SPEC_FILE}: class {class_id} has {self.spec.images(class_id):,} images; its record "
                    f"files can hold {records:,} at the most"
                )
        self._reader = RecordReader()
        self._indexes: dict[int, list[np.ndarray]] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_indexes": {}}

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One image, the checksums of its record verified."""
        return decode(self.encoded(split, class_name, index), self.where(split, class_name, index))

    def encoded(self, split: str, class_name: str, index: int) -> bytes:
        """The image file in the record."""
        file, offset = self._location(split, class_name, index)
        where = f"{file} at byte {offset}"
        image, label = decode_example(self._reader.read(file, offset), where)
        if label != self._ids[class_name]:
            raise BadInputError(f"{where}: label {label} in a record of class {self._ids[class_name]}")
        return image

    def where(self, split: str, class_name: str, index: int) -> str:
        """The record's file and offset."""
        file, offset = self._location(split, class_name, index)
        return f"{file} at byte {offset}"

    def digest(self) -> str:
        """Digest over the specification and the stored checksums of all records."""
        every = [file for class_id in sorted(self._files) for file in self._files[class_id]]
        stamps = [(file.name, *version_of(file.stat())) for file in every]
        signature = digest_of([self.spec.as_json(), *stamps])
        return remembered(self.path, signature, self._work_out_digest)

    def _work_out_digest(self) -> str:
        sums = (
            (
                class_id,
                [
                    zlib.crc32(np.ascontiguousarray(index[:, 1], "<i8").data)
                    for index in self._index(class_id)
                ],
            )
            for class_id in sorted(self._files)
        )
        return digest_of([self.spec.as_json(), *sums])

    def _location(self, split: str, class_name: str, index: int) -> tuple[Path, int]:
        count, class_id = self.count(split, class_name), self._ids[class_name]
        if not 0 <= index < count:
            raise BadInputError(
                f"class {class_name!r} of {self.name} has {count:,} images, no number {index}"
            )
        for file, offsets in zip(self._files[class_id], self._index(class_id), strict=True):
            if index < len(offsets):
                return file, int(offsets[index, 0])
            index -= len(offsets)
        raise AssertionError("the counts of records were compared with the specification")

    def _index(self, class_id: int) -> list[np.ndarray]:
        if class_id not in self._indexes:
            found = [record_index(file) for file in self._files[class_id]]
            records, expected = sum(map(len, found)), self.spec.images(class_id)
            if records != expected:
                names = ", ".join(file.name for file in self._files[class_id])
                raise BadInputError(
                    f"{self.path}: {names} has {records:,} records; {SPEC_FILE} has {expected:,}"
                )
            self._indexes[class_id] = found
        return self._indexes[class_id]


def class_labels(spec: DatasetSpec) -> list[str]:
    """Class names by id; with superclasses, superclass/class."""
    labels = list(spec.class_names)
    for groups in (spec.superclasses or {}).values():
        for group in groups:
            for class_id in group.classes:
                labels[class_id] = f"{group.name}/{labels[class_id].removeprefix(f'{group.name}-')}"
    return labels


def record_files(path: Path, spec: DatasetSpec) -> dict[int, list[Path]]:
    """Class id -> its record files; every class must have one."""
    if spec.file_pattern == PATTERNS[0]:
        files = {i: [path / spec.file_pattern.format(i)] for i in range(len(spec.class_names))}
    else:
        files = {i: [] for i in range(len(spec.class_names))}
        for file in sorted(path.glob("*_*.tfrecords"), key=lambda file: natural(file.name)):
            class_id = file.name.partition("_")[0]
            if class_id.isdecimal() and int(class_id) in files:
                files[int(class_id)].append(file)
    present = {file.name for file in path.glob("*.tfrecords")}
    missing = [i for i in files if not files[i] or any(file.name not in present for file in files[i])]
    if missing:
        raise MissingDataError(
            f"{path}: {len(missing):,} of the {len(files):,} classes of {SPEC_FILE} have no record file; "
            f"the first is class {missing[0]} ({spec.class_names[missing[0]]})"
        )
    return files


_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode_example(image: bytes, label: int) -> bytes:
    """An Example with features `image` (the bytes of an image file) and `label`."""
    packed_label = _field(1, _varint(label))
    return _field(1, _entry("image", _field(1, _field(1, image))) + _entry("label", _field(3, packed_label)))


def decode_example(data: bytes, where: str) -> tuple[bytes, int]:
    """Image bytes and label of an Example; other features are passed over. `where` names it in errors."""
    image: bytes | None = None
    label: int | None = None
    try:
        for features in _each(data, 1):
            for entry in _each(features, 1):
                key, feature = next(_each(entry, 1), b""), next(_each(entry, 2), b"")
                if key == b"image":
                    image = next(_each(next(_each(feature, 1), b""), 1), None)
                elif key == b"label":
                    label = _first_integer(next(_each(feature, 3), b""))
    except (IndexError, ValueError) as error:
        raise BadInputError(f"{where}: not a tf.train.Example ({error})") from error
    if image is None or label is None:
        raise BadInputError(f"{where}: the record has no {'image' if image is None else 'label'}")
    return image, label


def _entry(key: str, feature: bytes) -> bytes:
    return _field(1, _field(1, key.encode()) + _field(2, feature))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _each(message: bytes, number: int) -> Iterator[bytes]:
    """The length-delimited fields of this number."""
    for found, payload in _fields(message):
        if found == number and isinstance(payload, bytes):
            yield payload


def _first_integer(message: bytes) -> int | None:
    """First value of an Int64List, whether packed (as TensorFlow writes it) or not."""
    for number, payload in _fields(message):
        if number == 1:
            return payload if isinstance(payload, int) else _read_varint(payload, 0)[0]
    return None


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field runs past the end")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number runs over 64 bits")


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
