"""A source's images decoded and resized once, in one memory-mapped file that all processes share."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from cl_cnaps.data import decoding
from cl_cnaps.data.atomic import make_folder, partial_file
from cl_cnaps.data.digests import digest_of, digests_folder
from cl_cnaps.data.source import Source, check_indices, total
from cl_cnaps.data.tfrecords import index_folder
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.paths import cache_root

_CHUNK = 256  # images decoded between two reports of progress


class PackedSource:
    """A source whose images of one size come from a packed file, N x channels x size x size, uint8."""

    def __init__(self, source: Source, size: int, file: Path) -> None:
        self._source = source
        self._size = size
        self._file = file
        self._starts = _starts(source)
        self._pixels: np.ndarray | None = None
        self.name = source.name
        self.origin = source.origin
        self.splits = source.splits
        self.complete = source.complete
        self.grey = source.grey

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_pixels": None}  # each process maps the file for itself

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
        if self._pixels is None:
            self._pixels = np.load(self._file, mmap_mode="r", allow_pickle=False)
        rows = self._starts[split, class_name] + np.asarray(indices, dtype=np.int64)
        pixels = torch.from_numpy(self._pixels[rows])
        return pixels.expand(-1, 3, -1, -1).contiguous()

    def digest(self) -> str:
        """Digest of the source."""
        return self._source.digest()


def packed(source: Source, size: int, *, progress: Callable[[int], None] = lambda _: None) -> PackedSource:
    """The source with its images at `size` packed, now if they are not yet.

    `progress` is told the number of images packed since it was last told. The file is keyed by the content
    of the source. It appears when it is whole; of two processes that pack at once, either's file serves
    both.
    """
    file = packed_file(source, size)
    channels = 1 if source.grey else 3
    shape = (total(source), channels, size, size)
    if not file.is_file():
        make_folder(file.parent)
        _check_space(source, file.parent, int(np.prod(shape)))
        with partial_file(file) as partial:
            pixels = np.lib.format.open_memmap(partial, mode="w+", dtype=np.uint8, shape=shape)
            for (split, class_name), start in _starts(source).items():
                count = source.count(split, class_name)
                for first in range(0, count, _CHUNK):
                    chunk = range(first, min(first + _CHUNK, count))
                    images = source.images(split, class_name, chunk, size)
                    pixels[start + chunk.start : start + chunk.stop] = images[:, :channels].numpy()
                    progress(len(chunk))
            pixels.flush()
            del pixels  # closes the file, which some systems ask for before it is moved
    return PackedSource(source, size, file)


def packed_file(source: Source, size: int) -> Path:
    """Where a source's images of one size are packed."""
    key = digest_of([decoding.VERSION, source.digest(), source.grey, list(_starts(source).items())])
    return packed_folder() / f"{_slug(source.name)}-{size}px-{key[:24]}.npy"


def packed_folder() -> Path:
    """Where packed files are kept."""
    return cache_root() / "packed"


def clean(name: str | None = None) -> tuple[int, int]:
    """Remove the packed files of a source, or everything cached of any; returns files and bytes freed."""
    if name is not None:
        files = list(packed_folder().glob(f"{_slug(name)}-*px-*.npy"))
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
