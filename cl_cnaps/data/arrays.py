"""Sets that come as a few big arrays of pixels and labels rather than as a file an image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from PIL import Image

from cl_cnaps.data.source import CountedSource
from cl_cnaps.errors import BadInputError


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
