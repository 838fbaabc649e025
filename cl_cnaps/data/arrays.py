"""Sets that come as big arrays of pixels rather than as a file an image: torchvision's, and QuickDraw's bitmaps."""

from __future__ import annotations

import hashlib
import io
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from cl_cnaps.data.cache import digest_of, remembered
from cl_cnaps.data.folders import is_hidden, natural
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.trees import DirectoryTree, Tree
from cl_cnaps.errors import BadInputError, foreign


@dataclass(frozen=True)
class LabelledPixels:
    """Images of one split: uint8, N x H x W (grey) or N x H x W x 3, with a class number each."""

    pixels: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        if self.pixels.dtype != np.uint8 or len(self.pixels) != len(self.labels):
            raise BadInputError(
                f"{len(self.pixels):,} images of {self.pixels.dtype} and {len(self.labels):,} labels "
                f"do not go together"
            )


Loader = Callable[[], Mapping[str, LabelledPixels]]
"""Reads all splits; a module-level function or a `functools.partial` of one, so that it can be pickled."""


class ArraySource(CountedSource):
    """Images in memory, read when first needed in each process."""

    def __init__(
        self, name: str, origin: str, load: Loader, class_names: tuple[str, ...], complete: bool | None = None
    ) -> None:
        self._load = load
        self._class_names = class_names
        self._held: tuple[Mapping[str, LabelledPixels], dict[tuple[str, str], np.ndarray]] | None = None
        splits, rows = self._loaded()
        counts = {s: {c: len(rows[s, c]) for c in class_names if len(rows[s, c])} for s in splits}
        self.grey = all(part.pixels.ndim == 3 for part in splits.values())
        super().__init__(name, origin, counts, complete)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_held": None}

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One image."""
        splits, rows = self._loaded()
        return Image.fromarray(splits[split].pixels[rows[split, class_name][index]])

    def where(self, split: str, class_name: str, index: int) -> str:
        """The image's number in its split's array."""
        _, rows = self._loaded()
        return f"{self.name} {split} image {rows[split, class_name][index]}"

    def digest(self) -> str:
        """Digest over pixels and labels of every split."""
        digest = hashlib.sha256()
        for split, part in self._loaded()[0].items():
            digest.update(f"{split} {part.pixels.shape}".encode())
            digest.update(np.ascontiguousarray(part.pixels).data)
            digest.update(np.ascontiguousarray(part.labels, dtype="<i8").data)
        return digest.hexdigest()

    def _loaded(self) -> tuple[Mapping[str, LabelledPixels], dict[tuple[str, str], np.ndarray]]:
        if self._held is None:
            splits = self._load()
            for split, part in splits.items():
                unknown = set(np.unique(part.labels).tolist()) - set(range(len(self._class_names)))
                if unknown:
                    raise BadInputError(
                        f"label {min(unknown)} in split {split!r}; there are {len(self._class_names)} classes"
                    )
            rows = {
                (split, name): np.flatnonzero(part.labels == number)
                for split, part in splits.items()
                for number, name in enumerate(self._class_names)
            }
            self._held = (splits, rows)
        return self._held


_KEPT = 4  # classes whose array stays in memory: an official one is up to 220 MB
_HEADER_BYTES = 1024  # more than any .npy header of a plain array


class BitmapSource(CountedSource):
    """Classes of a tree's .npy files, each N x side² or N x side x side, uint8."""

    grey = True

    def __init__(self, name: str, origin: str, tree: Tree, *, complete: bool | None = None) -> None:
        self._tree = tree
        self._files = bitmap_files(tree)
        self._recent: OrderedDict[str, np.ndarray] = OrderedDict()
        super().__init__(
            name, origin, {"all": {c: self._shape(f)[0] for c, f in self._files.items()}}, complete
        )

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_recent": OrderedDict()}

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One bitmap."""
        self._of_split(split)
        row = np.asarray(self._array(class_name)[index])
        return Image.fromarray(row.reshape(_side(row.size), -1))

    def where(self, split: str, class_name: str, index: int) -> str:
        """The class's file and the row in it."""
        self._of_split(split)
        return f"{self._tree.where(self._files[class_name])} row {index}"

    def digest(self) -> str:
        """Digest over class, size and CRC-32 of every file."""
        return remembered(self._tree.path, self._tree.signature(), self._work_out_digest)

    def _work_out_digest(self) -> str:
        sums = self._tree.checksums(self._files.values())
        return digest_of((name, *checksum) for name, checksum in zip(self._files, sums, strict=True))

    def _array(self, class_name: str) -> np.ndarray:
        if class_name in self._recent:
            self._recent.move_to_end(class_name)
            return self._recent[class_name]
        array = self._load(self._files[class_name])
        self._recent[class_name] = array
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        return array

    def _load(self, file: str) -> np.ndarray:
        where = self._tree.where(file)
        array: np.ndarray
        with foreign(where, "not a whole .npy file"):
            if isinstance(self._tree, DirectoryTree):
                array = np.load(self._tree.path / file, mmap_mode="r", allow_pickle=False)
            else:
                array = np.load(io.BytesIO(self._tree.read(file)), allow_pickle=False)
        return array

    def _shape(self, file: str) -> tuple[int, ...]:
        """Shape of a file's array, from its header alone."""
        where = self._tree.where(file)
        start = io.BytesIO(self._tree.head(file, _HEADER_BYTES))
        with foreign(where, "not a .npy file"):
            if np.lib.format.read_magic(start) != (1, 0):
                raise ValueError("not version 1.0 of the format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(start)
            fits = dtype == np.uint8 and len(shape) in {2, 3} and _side(math.prod(shape[1:]))
        if not fits:
            raise BadInputError(f"{where}: {dtype} of shape {shape}; expected uint8, N x 784 or N x 28 x 28")
        if start.tell() + math.prod(shape) != self._tree.size(file):
            raise BadInputError(f"{where}: not a whole .npy file (its header names {shape[0]:,} images)")
        return tuple(shape)


def bitmap_files(tree: Tree) -> dict[str, str]:
    """Class name -> .npy file of a tree, in natural order."""
    names = [name for name in tree.names() if name.endswith(".npy") and not is_hidden(name)]
    found = {PurePosixPath(name).stem: name for name in names}
    return {name: found[name] for name in sorted(found, key=natural)}


def _side(pixels: int) -> int:
    """Side of a square of so many pixels, 0 if there is none."""
    side = math.isqrt(pixels)
    return side if side * side == pixels else 0
