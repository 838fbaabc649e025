"""CIFAR-10 and CIFAR-100 as torchvision lays them out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cl_cnaps.data.arrays import LabelledPixels
from cl_cnaps.errors import BadInputError

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain",
    "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider",
    "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger",
    "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
    "worm",
)  # fmt: skip

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


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
            f"{root / FOLDERS[name]} is not the official {name}: a file is missing or its checksum is wrong. "
            f"Remove the folder and run: cl-cnaps data fetch {name}"
        ) from error
    return {
        s: LabelledPixels(part.data, np.asarray(part.targets, dtype=np.int64)) for s, part in parts.items()
    }
