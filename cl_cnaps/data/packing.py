"""A source's images decoded and resized once, in one checked file that all processes share."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from cl_cnaps.data.atomic import locked, make_folder, remove_partial
from cl_cnaps.data.cache import (
    DamagedRowsError,
    RowFile,
    digest_of,
    digests_folder,
    index_folder,
    new_rows,
    open_rows,
)
from cl_cnaps.data.source import VERSION, Source, check_indices, total
from cl_cnaps.errors import ClCnapsError, MissingDataError
from cl_cnaps.paths import cache_root
from cl_cnaps.torch_setup import check_memory

_CHUNK = 256  # images decoded between two reports of progress


class PackedSource:
    """A source whose images of one size come from a packed file, N x channels x size x size, uint8."""

    feature_width = None

    def __init__(self, source: Source, size: int, rows: RowFile) -> None:
        self._source = source
        self._size = size
        self._starts = _starts(source)
        self._rows: RowFile | None = rows
        self.name = source.name
        self.origin = source.origin
        self.splits = source.splits
        self.complete = source.complete
        self.grey = source.grey

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_rows": None}  # each process opens the file for itself

    def classes(self, split: str) -> tuple[str, ...]:
        """Class names of a split, in order."""
        return self._source.classes(split)

    def count(self, split: str, class_name: str) -> int:
        """Number of images of a class in a split."""
        return self._source.count(split, class_name)

    def images(self, split: str, class_name: str, indices: Sequence[int], size: int) -> torch.Tensor:
        """The images at these indices: uint8, N x 3 x size x size; other sizes come from the source."""
        if size != self._size:
            return self._source.images(split, class_name, indices, size)
        check_indices(self, split, class_name, indices)
        check_memory(
            6 * len(indices) * size**2,
            f"reading {len(indices):,} images of {self.name} at {size} x {size} pixels",
        )
        rows = self._starts[split, class_name] + np.asarray(indices, dtype=np.int64)
        try:
            pixels = self._opened().read(rows)
        except DamagedRowsError:
            self._rows = None
            pixels = self._opened().read(rows)
        return torch.from_numpy(pixels).expand(-1, 3, -1, -1).contiguous()

    def digest(self) -> str:
        """Digest of the source."""
        return self._source.digest()

    def _opened(self) -> RowFile:
        if self._rows is None:
            self._rows = _open_or_pack(self._source, self._size, lambda _: None)
        return self._rows


def packed(source: Source, size: int, *, progress: Callable[[int], None] = lambda _: None) -> PackedSource:
    """The source with its images at `size` packed, now if they are not yet.

    `progress` is called with the number of images packed since the last call. The file is keyed by the content of
    the source. It appears when it is whole, and is packed again when it is found to be damaged. Of several processes
    that want it, one packs and the others wait.
    """
    return PackedSource(source, size, _open_or_pack(source, size, progress))


def _open_or_pack(source: Source, size: int, progress: Callable[[int], None]) -> RowFile:
    key = _key(source, size)
    file = _file(source, size, key)
    if (rows := open_rows(file, key)) is not None:
        return rows
    with locked(cache_root() / "locks" / file.name):
        if (rows := open_rows(file, key)) is None:  # no other process packed it meanwhile
            make_folder(file.parent)
            remove_partial(file)
            _pack(source, size, file, key, progress)
            rows = open_rows(file, key)
    if rows is None:
        raise ClCnapsError(
            f"{file} is damaged although it was just packed: the disk loses what is written to it"
        )
    return rows


def _pack(source: Source, size: int, file: Path, key: str, progress: Callable[[int], None]) -> None:
    channels = 1 if source.grey else 3
    shape = (total(source), channels, size, size)
    _check_space(source, file.parent, math.prod(shape))
    with new_rows(file, key, np.dtype(np.uint8), shape) as append:
        for split, class_name in _starts(source):
            count = source.count(split, class_name)
            for first in range(0, count, _CHUNK):
                chunk = range(first, min(first + _CHUNK, count))
                append(source.images(split, class_name, chunk, size)[:, :channels].numpy())
                progress(len(chunk))


def packed_file(source: Source, size: int) -> Path:
    """Where a source's images of one size are packed."""
    return _file(source, size, _key(source, size))


def _key(source: Source, size: int) -> str:
    """Digest of everything that decides the packed pixels."""
    starts = list(_starts(source).items())
    return digest_of([VERSION, source.digest(), source.grey, size, starts])


def _file(source: Source, size: int, key: str) -> Path:
    return packed_folder() / f"{_slug(source.name)}-{size}px-{key[:24]}.rows"


def packed_folder() -> Path:
    """Where packed files are kept."""
    return cache_root() / "packed"


def clean(name: str | None = None) -> tuple[int, int]:
    """Remove the packed files of a source, or everything cached of any; returns files and bytes freed."""
    if name is not None:
        kind, colon, path = name.partition(":")
        own = Path(path).expanduser().resolve().stem if colon else kind  # as sources of a path are named
        files = list(packed_folder().glob(f"{_slug(own)}-*px-*"))
        if not files:
            raise MissingDataError(f"no images of {name} are packed in {packed_folder()}")
    else:
        folders = (packed_folder(), digests_folder(), index_folder())
        files = [file for folder in folders for file in folder.glob("*") if file.is_file()]
        # What a killed process left half-written.
        files += [file for folder in folders for file in folder.glob(".*.partial")]
    files = list(dict.fromkeys(files))
    freed = sum(file.stat().st_size for file in files)
    for file in files:
        file.unlink(missing_ok=True)
    return len(files), freed


def _starts(source: Source) -> dict[tuple[str, str], int]:
    """Split and class -> the row of its first image."""
    starts: dict[tuple[str, str], int] = {}
    row = 0
    for split in source.splits:
        for class_name in source.classes(split):
            starts[split, class_name] = row
            row += source.count(split, class_name)
    return starts


def _check_space(source: Source, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ClCnapsError(
            f"packing {source.name} takes {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB free; "
            f"make room, or set CL_CNAPS_CACHE to a folder on another disk"
        )


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "source"
