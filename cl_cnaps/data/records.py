"""A folder of Meta-Dataset records: a file or a few per class, and dataset_spec.json."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from cl_cnaps.data.cache import digest_of, remembered, version_of
from cl_cnaps.data.decoding import decode
from cl_cnaps.data.folders import natural
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.spec import PATTERNS, SPLITS, DatasetSpec, read_spec
from cl_cnaps.data.tfrecords import SMALLEST_RECORD, RecordReader, decode_example, record_index
from cl_cnaps.errors import BadInputError, MissingDataError

SPEC_FILE = "dataset_spec.json"
SPLIT_NAMES = dict(zip(SPLITS, ("train", "val", "test"), strict=True))


class RecordSource(CountedSource):
    """Classes of a specification, their images read from records one at a time.

    Splits are of classes, as in the specification: "train", "val", "test", without those that have no class.
    Where a class has several files (shards, or pools of training and test images) its images are those of all
    files, in the order of their names. Classes in superclasses are called superclass/class.
    """

    def __init__(self, path: Path, name: str | None = None, complete: bool | None = None) -> None:
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
        super().__init__(name or self.spec.name, str(path), counts, complete)
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

    def class_id(self, class_name: str) -> int:
        """The class's id in the specification, which is the label in its records."""
        return self._ids[class_name]

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One image, the checksums of its record verified."""
        return decode(self.encoded(split, class_name, index), self.where(split, class_name, index))

    def encoded(self, split: str, class_name: str, index: int) -> bytes:
        """The image file in the record."""
        file, offset = self._place(split, class_name, index)
        where = f"{file} at byte {offset}"
        image, label = decode_example(self._reader.read(file, offset), where)
        if label != self._ids[class_name]:
            raise BadInputError(f"{where}: label {label} in a record of class {self._ids[class_name]}")
        return image

    def where(self, split: str, class_name: str, index: int) -> str:
        """The record's file and offset."""
        file, offset = self._place(split, class_name, index)
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

    def _place(self, split: str, class_name: str, index: int) -> tuple[Path, int]:
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
