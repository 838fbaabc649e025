"""What a source of images is: named classes of images, in splits, at any size.

Image files are decoded and resized here and nowhere else, to square RGB tensors.
"""

from __future__ import annotations

import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError

from cl_cnaps.errors import BadInputError, foreign
from cl_cnaps.torch_setup import check_memory

MAX_PIXELS = 64_000_000
"""Larger images are refused before they are decoded: they are mistakes or attacks."""

VERSION = 2
"""Part of every cache key: raise it when decoding or resizing changes what comes out."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, whatever a file is called: Pillow knows forty more, and hands some to other programs."""

# Pillow warns of odd metadata without naming the file; what it can still decode is used.
warnings.filterwarnings("ignore", module=r"PIL\.")

Counts = Mapping[str, Mapping[str, int]]
"""Split name -> class name -> number of images, both in their stable order."""


@runtime_checkable
class Source(Protocol):
    """Named images by class, with splits.

    Sources are read-only, may be pickled, and may be used from several processes at once.
    """

    @property
    def name(self) -> str:
        """Short name, as in `open_source(name)`."""

    @property
    def origin(self) -> str:
        """Where the images came from, in words."""

    @property
    def splits(self) -> tuple[str, ...]:
        """As found: ("train", "test"), ("train", "val", "test"), ("background", "evaluation") or ("all",)."""

    @property
    def complete(self) -> bool | None:
        """Whether the official number of classes and images is there; None where no such number is known."""

    @property
    def grey(self) -> bool:
        """Whether all images are known to be grey, so that one channel holds all there is."""

    @property
    def feature_width(self) -> int | None:
        """Width of the features that a source of features gives in place of images; None of images."""

    def classes(self, split: str) -> tuple[str, ...]:
        """Class names of a split, in a stable order."""

    def count(self, split: str, class_name: str) -> int:
        """Number of images of a class in a split."""

    def images(self, split: str, class_name: str, indices: Sequence[int], size: int) -> torch.Tensor:
        """The images at these indices: uint8, N x 3 x size x size, RGB."""

    def digest(self) -> str:
        """Hexadecimal digest of the content: equal on every machine and path that holds the same images."""


class CountedSource(ABC):
    """A source that knows its counts from the start and reads one image at a time.

    Subclasses define how one image is opened, where it is, and the digest of the content.
    """

    grey = False
    feature_width: int | None = None

    def __init__(self, name: str, origin: str, counts: Counts, complete: bool | None = None) -> None:
        self.name = name
        self.origin = origin
        self.complete = complete
        self._counts = {split: dict(classes) for split, classes in counts.items()}

    @property
    def splits(self) -> tuple[str, ...]:
        """Split names, in order."""
        return tuple(self._counts)

    def classes(self, split: str) -> tuple[str, ...]:
        """Class names of a split, in order."""
        return tuple(self._of_split(split))

    def count(self, split: str, class_name: str) -> int:
        """Number of images of a class in a split."""
        classes = self._of_split(split)
        if class_name not in classes:
            raise BadInputError(
                f"{self.name} has no class {class_name!r} in split {split!r}; "
                f"its {len(classes):,} classes there are {_some(classes)}"
            )
        return classes[class_name]

    def images(self, split: str, class_name: str, indices: Sequence[int], size: int) -> torch.Tensor:
        """The images at these indices: uint8, N x 3 x size x size, RGB."""
        check_indices(self, split, class_name, indices)
        check_size(size)
        check_memory(
            6 * len(indices) * size**2,  # once as images and once in the array that joins them
            f"reading {len(indices):,} images of {self.name} at {size} x {size} pixels",
        )
        if not len(indices):
            return torch.empty((0, 3, size, size), dtype=torch.uint8)
        return torch.stack([as_tensor(self.image(split, class_name, int(i)), size) for i in indices])

    def encoded(self, split: str, class_name: str, index: int) -> bytes:
        """One image as a JPEG or PNG file: the file's own bytes where there is one, else a lossless PNG."""
        return encode_png(self.image(split, class_name, index))

    @abstractmethod
    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        """One image in its own size, mode "L" or "RGB"."""

    @abstractmethod
    def where(self, split: str, class_name: str, index: int) -> str:
        """Where one image is: a file, or a file and a position."""

    @abstractmethod
    def digest(self) -> str:
        """Digest of the content."""

    def _of_split(self, split: str) -> Mapping[str, int]:
        if split not in self._counts:
            raise BadInputError(f"{self.name} has no split {split!r}; it has {', '.join(self._counts)}")
        return self._counts[split]


def check_indices(source: Source, split: str, class_name: str, indices: Sequence[int]) -> None:
    """Raise unless every index is one of the class's images."""
    count = source.count(split, class_name)
    wrong = [int(i) for i in indices if not 0 <= int(i) < count]
    if wrong:
        raise BadInputError(
            f"class {class_name!r} of {source.name} has {count:,} images in split {split!r}; "
            f"there is no image number {wrong[0]}"
        )


def check_size(size: int) -> None:
    """Raise unless this is a side that an image can have."""
    if not 1 <= size <= 4096:
        raise BadInputError(f"images of {size} x {size} pixels are not possible; the side must be 1 to 4096")


def empty_images(source: Source, count: int, size: int) -> torch.Tensor:
    """Return room for images of a source, or for its features."""
    if source.feature_width is not None:
        return torch.empty((count, source.feature_width))
    return torch.empty((count, 3, size, size), dtype=torch.uint8)


def total(source: Source, split: str | None = None) -> int:
    """Number of images in a split, or in all."""
    splits = source.splits if split is None else (split,)
    return sum(source.count(s, c) for s in splits for c in source.classes(s))


def _some(names: Mapping[str, int]) -> str:
    listed = ", ".join(list(names)[:10])
    return f"{listed}, ..." if len(names) > 10 else listed


def decode(data: bytes, where: str) -> Image.Image:
    """Decode an image file to mode "L" (if it is grey) or "RGB", upright; `where` names it in errors."""
    with foreign(where, "damaged image file"):
        try:
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
        except UnidentifiedImageError:
            raise BadInputError(f"{where}: not an image file ({len(data):,} bytes)") from None
        if image.width * image.height > MAX_PIXELS:
            raise BadInputError(
                f"{where}: {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read"
            )
        if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
            raise BadInputError(f"{where}: pixels of 32 bits, whose range is not known; save it with 8 or 16")
        image.load()
        return upright(image)


def passes_as_is(data: bytes) -> bool:
    """Whether the bytes are a JPEG or PNG file, which any reader of records can decode."""
    return data[:3] == b"\xff\xd8\xff" or data[:8] == b"\x89PNG\r\n\x1a\n"


def as_tensor(image: Image.Image, size: int) -> torch.Tensor:
    """Squash to size x size, bilinear with antialiasing: uint8, 3 x size x size."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    pixels = np.array(image)
    if pixels.ndim == 2:
        return torch.from_numpy(pixels).expand(3, size, size)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def encode_png(image: Image.Image) -> bytes:
    """A lossless PNG file of the image."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def upright(image: Image.Image) -> Image.Image:
    """Turn an image by its camera's orientation tag and bring it to mode "L" or "RGB"."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit grey: Pillow's own conversion would clip it to white
        return Image.fromarray((np.asarray(image, dtype=np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in {"1", "L"}:
        return image.convert("L")
    return image.convert("RGB")
