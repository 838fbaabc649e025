"""Images in any form: one way in, so that every form of a picture gives the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cl_cnaps.data import open_source
from cl_cnaps.data.folders import IMAGE_SUFFIXES, folders_without_images, is_image, natural
from cl_cnaps.data.source import as_tensor, decode, upright
from cl_cnaps.data.trees import open_tree
from cl_cnaps.errors import BadInputError
from cl_cnaps.paths import read_file

ImageInput = str | Path | bytes | Image.Image | np.ndarray | Tensor | Sequence[Any]
"""A folder or zip, a file, the bytes of one, a PIL image, an array or tensor of one image or many, a list of these."""

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Picture:
    """One image, not yet read."""

    name: str
    """Its file below the folder that was given, or its number."""
    read: Callable[[], Image.Image]


def pictures(images: ImageInput) -> list[Picture]:
    """List the images of any form of input, in order.

    Arrays are height x width (x channels), tensors channels x height x width, one or many, uint8 or float in [0, 1].
    """
    if isinstance(images, str | Path) and not str(images).lower().endswith(IMAGE_SUFFIXES):
        return _of_tree(Path(images).expanduser())
    if isinstance(images, str | Path):
        return [_picture(images, str(images))]
    if isinstance(images, bytes | Image.Image):
        return [_picture(images, "0")]
    if isinstance(images, Tensor):
        return _of_array(images.detach().cpu().numpy(), channels_first=True)
    if isinstance(images, np.ndarray) and images.dtype != object and images.dtype.kind not in "US":
        return _of_array(images, channels_first=False)
    return [
        _picture(image, str(image) if isinstance(image, str | Path) else str(i))
        for i, image in enumerate(images)
    ]


def pixels(images: Iterable[Picture], size: int) -> Tensor:
    """Read images: uint8, N x 3 x size x size."""
    found = [as_tensor(picture.read(), size) for picture in images]
    return torch.stack(found) if found else torch.empty(0, 3, size, size, dtype=torch.uint8)


def _of_tree(path: Path) -> list[Picture]:
    tree = open_tree(path)
    names = sorted(filter(is_image, tree.names()), key=natural)
    if not names:
        raise BadInputError(f"{path} holds no images ({', '.join(IMAGE_SUFFIXES)})")
    return [Picture(name, lambda name=name: decode(tree.read(name), tree.where(name))) for name in names]  # type: ignore[misc]


def _picture(image: Any, name: str) -> Picture:
    """One image of any form but a folder."""
    if isinstance(image, Picture):
        return image
    if isinstance(image, str | Path):
        return Picture(name, lambda: decode(read_file(Path(image).expanduser()), str(image)))
    if isinstance(image, bytes):
        return Picture(name, lambda: decode(image, f"image {name}"))
    if isinstance(image, Image.Image):
        return Picture(name, lambda: upright(image))
    if isinstance(image, Tensor | np.ndarray):
        found = pictures(image)
        if len(found) == 1:
            return Picture(name, found[0].read)
    raise BadInputError(
        f"image {name} is {_kind(image)}: give a file, its bytes, a PIL image, an array or a tensor of one image"
    )


def _of_array(array: np.ndarray, *, channels_first: bool) -> list[Picture]:
    batch = _as_batch(array, channels_first)
    _check_values(array)
    whole = batch if array.dtype == np.uint8 else np.rint(batch * 255).astype(np.uint8)
    return [Picture(str(i), lambda image=image: _from_pixels(image)) for i, image in enumerate(whole)]  # type: ignore[misc]


def _as_batch(array: np.ndarray, channels_first: bool) -> np.ndarray:
    """N x H x W x C; where sizes leave both orders open, the one that is usual for the type."""
    shape = array.shape
    if array.ndim == 2:
        return array[None, :, :, None]
    if array.ndim in (3, 4):
        first, last = shape[-3] in _CHANNELS, shape[-1] in _CHANNELS
        if first and (channels_first or not last):
            moved = np.moveaxis(array, -3, -1)
            return moved if array.ndim == 4 else moved[None]
        if last:
            return array if array.ndim == 4 else array[None]
        if array.ndim == 3:  # many grey images
            return array[..., None]
    raise BadInputError(
        f"an array of shape {shape} is no image: expected height x width, with 1, 3 or 4 channels last (arrays) or "
        "first (tensors), one or many"
    )


def _check_values(array: np.ndarray) -> None:
    if array.dtype == np.uint8 or not array.size:
        return
    if array.dtype.kind != "f":
        raise BadInputError(f"images of {array.dtype}: expected uint8 in 0..255, or float in [0, 1]")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # also of NaN
        raise BadInputError(
            f"float images must be in [0, 1], and these are in [{low:.3g}, {high:.3g}]: give uint8, or undo the scaling"
        )


def _from_pixels(pixels: np.ndarray) -> Image.Image:
    if pixels.shape[-1] == 1:
        return Image.fromarray(np.ascontiguousarray(pixels[..., 0]))
    return upright(Image.fromarray(np.ascontiguousarray(pixels)))


def _kind(image: Any) -> str:
    return f"of shape {tuple(image.shape)}" if hasattr(image, "shape") else f"a {type(image).__name__}"


def labelled_pictures(images: ImageInput, labels: Any) -> tuple[list[Picture], np.ndarray]:
    """List images and their labels; without labels, those of a folder or zip of class folders."""
    if labels is None:
        return _labelled_folder(images)
    found, labels = pictures(images), np.asarray(labels)
    if labels.shape != (len(found),):
        raise BadInputError(
            f"{len(found)} images and labels of shape {labels.shape}: one label an image is needed"
        )
    if not len(found):
        raise BadInputError("there are no images to learn from")
    return found, labels


def _labelled_folder(folder: Any) -> tuple[list[Picture], np.ndarray]:
    """List the images of a folder of class folders, and the class of each."""
    if not isinstance(folder, str | Path):
        raise BadInputError(
            "there are no labels: give y, or a folder or zip with one folder of images per class"
        )
    source = open_source(f"folder:{folder}")
    tree = open_tree(Path(folder).expanduser())
    if bare := folders_without_images(tree):
        raise BadInputError(
            f"{tree.where(bare[0])} holds no images ({', '.join(IMAGE_SUFFIXES)}): put some there or take the "
            "folder away"
        )
    if len(source.splits) > 1:
        raise BadInputError(
            f"{folder} holds several splits ({', '.join(source.splits)}): give the folder of one of them"
        )
    (split,) = source.splits
    found, labels = [], []
    for name in source.classes(split):
        for i in range(source.count(split, name)):
            found.append(Picture(source.where(split, name, i), lambda n=name, i=i: source.image(split, n, i)))  # type: ignore[misc]
            labels.append(name)
    return found, np.array(labels)
