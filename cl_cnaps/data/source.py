"""What every part of this project asks of images: named classes of images, in splits, at any size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from PIL import Image

from cl_cnaps.data.decoding import as_tensor, encode_png
from cl_cnaps.errors import BadInputError
from cl_cnaps.torch_setup import check_memory

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


def _some(names: Mapping[str, int], shown: int = 10) -> str:
    listed = ", ".join(list(names)[:shown])
    return f"{listed}, ..." if len(names) > shown else listed
