"""Sets whose classes are not folders where torchvision puts them, but are listed in a file beside the images."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from cl_cnaps.data.layout import Table, natural
from cl_cnaps.errors import BadInputError, MissingDataError


def traffic_signs(folder: Path) -> Table:
    """GTSRB below torchvision's `gtsrb` folder: class folders for training, a list of labels for testing."""
    training = folder / "GTSRB" / "Training"
    train = [(file.parent.name, _below(folder, file)) for file in training.glob("*/*.ppm")]
    labels = folder / "GT-final_test.csv"
    if not labels.is_file():
        raise MissingDataError(f"{labels} does not exist, so the test signs in {folder} have no classes")
    rows = csv.DictReader(labels.read_text().splitlines(), delimiter=";", skipinitialspace=True)
    try:
        test = [(f"{int(row['ClassId']):05d}", f"GTSRB/Final_Test/Images/{row['Filename']}") for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInputError(
            f"{labels} is damaged ({error}); remove the folder and fetch the set again"
        ) from error
    return {"train": _sorted(train), "test": _sorted(test)}


def flowers(folder: Path) -> Table:
    """Oxford Flowers below torchvision's `flowers-102` folder; a class is called by its Oxford label, 1 to 102."""
    from scipy.io import loadmat

    file = folder / "imagelabels.mat"
    if not file.is_file():
        raise MissingDataError(f"{file} does not exist, so the flowers in {folder} have no names")
    try:
        labels = loadmat(str(file), squeeze_me=True)["labels"].tolist()
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{file} is damaged ({error}); remove the folder and fetch the set again"
        ) from error
    return {
        "all": _sorted(
            (str(label), f"jpg/image_{number:05d}.jpg") for number, label in enumerate(labels, start=1)
        )
    }


def _below(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix()


def _sorted(labelled: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    classes: defaultdict[str, list[str]] = defaultdict(list)
    for class_name, file in labelled:
        classes[class_name].append(file)
    return {name: tuple(sorted(classes[name], key=natural)) for name in sorted(classes, key=natural)}
