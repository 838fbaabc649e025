"""Sets that torchvision keeps otherwise than in a folder per class: as arrays, or with a list of labels."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from cl_cnaps.data import cifar, mnist
from cl_cnaps.data.arrays import ArraySource
from cl_cnaps.data.catalog import KnownSet
from cl_cnaps.data.folders import FolderSource
from cl_cnaps.data.layout import Table, natural
from cl_cnaps.data.source import CountedSource
from cl_cnaps.data.trees import DirectoryTree
from cl_cnaps.errors import MissingDataError, foreign
from cl_cnaps.untrusted import MAX_TEXT_BYTES, below, read_file


def torchvision_source(known: KnownSet, root: Path) -> CountedSource | None:
    """The set as torchvision lays it out below `root`, or None; its origin is the folder it was found in."""
    if known.name in _IDX_FOLDERS:
        folder = f"{_IDX_FOLDERS[known.name]}/raw"
        if mnist.has_idx(root / folder):
            return ArraySource(known.name, folder, partial(mnist.read_idx, root / folder), known.order)
    elif known.name in cifar.FOLDERS:
        folder = cifar.FOLDERS[known.name]
        if (root / folder).is_dir():
            return ArraySource(known.name, folder, partial(cifar.read_cifar, root, known.name), known.order)
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
