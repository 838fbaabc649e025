"""The images that a data set's tasks are drawn from: some classes of a source, under the names tasks use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cl_cnaps.data.cache import digest_of
from cl_cnaps.data.source import Source, check_indices, empty_images
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.errors import BadInputError

SPLIT = "test"
"""The one split of a view; every task of an evaluation is drawn from it."""


@dataclass(frozen=True)
class Piece:
    """A class of one split of a source, with all its images."""

    split: str
    class_name: str
    count: int


class EpisodeImages:
    """A view of a source, itself a source: named classes, each put together from pieces of the source's splits.

    With `invert`, black becomes white and white black.
    """

    splits = (SPLIT,)

    def __init__(
        self, source: Source, pieces: Mapping[str, Sequence[Piece]], *, invert: bool = False
    ) -> None:
        self.source = source
        self.pieces = {label: tuple(parts) for label, parts in pieces.items()}
        self.invert = invert
        self.name = source.name
        self.origin = f"{source.origin}; shown white on black" if invert else source.origin
        self.complete = source.complete
        self.grey = source.grey
        self.feature_width = source.feature_width
        self._counts = {label: sum(part.count for part in parts) for label, parts in self.pieces.items()}

    def classes(self, split: str) -> tuple[str, ...]:
        """Class names, in order."""
        self._check(split)
        return tuple(self.pieces)

    def count(self, split: str, class_name: str) -> int:
        """Number of images of a class."""
        self._check(split)
        if class_name not in self._counts:
            raise BadInputError(f"the tasks of {self.name} have no class {class_name!r}")
        return self._counts[class_name]

    def images(self, split: str, class_name: str, indices: Sequence[int], size: int) -> Tensor:
        """The images at these indices: uint8, N x 3 x size x size; of a source of features these."""
        check_indices(self, split, class_name, indices)
        images = empty_images(self, len(indices), size)
        start = 0
        for piece in self.pieces[class_name]:
            mine = [i for i, index in enumerate(indices) if start <= index < start + piece.count]
            if mine:
                wanted = [int(indices[i]) - start for i in mine]
                images[mine] = self.source.images(piece.split, piece.class_name, wanted, size)
            start += piece.count
        return 255 - images if self.invert else images

    def digest(self) -> str:
        """Digest of the content: of the source, and of what is taken from it."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        taken = [
            [label, [[part.split, part.class_name, part.count] for part in parts]]
            for label, parts in self.pieces.items()
        ]
        return digest_of([self.source.digest(), self.invert, *taken])

    def _check(self, split: str) -> None:
        if split != SPLIT:
            raise BadInputError(f"the tasks of {self.name} have one split, {SPLIT!r}, not {split!r}")


def images_of(source: Source, class_names: Sequence[str], rows: IntArray, size: int) -> Tensor:
    """Return the images of rows of (class position, image index), in their order, as `source.images` gives them."""
    images = empty_images(source, len(rows), size)
    for position in dict.fromkeys(rows[:, 0].tolist()):
        own = rows[:, 0] == position
        wanted = rows[own, 1].tolist()
        images[torch.from_numpy(own)] = source.images(SPLIT, class_names[position], wanted, size)
    return images
