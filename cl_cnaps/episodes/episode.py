"""What an episode is: which images of which classes are support and query, and the batch with its images loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import torch
from numpy.random import PCG64, Generator, SeedSequence
from torch import Tensor

from cl_cnaps.errors import BadInputError

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Episode:
    """One few-shot task as a description.

    `support` (n x 2) and `query` (m x 2) hold rows of (class position, image index). The position counts in
    `class_names` and is the label 0..way-1 that a model sees; the index counts the images of that class in
    its source. Rows are grouped by class in way order. No image is in both sets or twice in one.
    """

    source: str
    """The source of the images; of a mixture, the name under which it was mixed."""
    class_names: tuple[str, ...]
    support: IntArray
    query: IntArray
    seed: int
    index: int

    def __post_init__(self) -> None:
        where = f"episode {self.index} of {self.source!r}"
        if len(set(self.class_names)) != len(self.class_names):
            raise BadInputError(f"{where}: class names must be distinct")
        for name in ("support", "query"):
            # A private read-only copy: a frozen description must not change under whoever holds it.
            rows = np.array(getattr(self, name), dtype=np.int64)
            if rows.ndim != 2 or rows.shape[1] != 2 or len(rows) == 0:
                raise BadInputError(
                    f"{where}: {name} has shape {rows.shape}; rows of (class, image) are needed"
                )
            if rows.min() < 0 or rows[:, 0].max() >= self.way:
                raise BadInputError(
                    f"{where}: {name} has a class position outside 0..{self.way - 1} or a negative index"
                )
            rows.flags.writeable = False
            object.__setattr__(self, name, rows)
        everything = np.concatenate([self.support, self.query])
        keys = everything[:, 0] * (int(everything[:, 1].max()) + 1) + everything[:, 1]
        if len(np.unique(keys)) != len(keys):
            raise BadInputError(f"{where}: an image is used twice")

    @property
    def way(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def shots(self) -> IntArray:
        """Support images of each class, in way order."""
        return np.bincount(self.support[:, 0], minlength=self.way).astype(np.int64)

    @property
    def queries(self) -> IntArray:
        """Query images of each class, in way order."""
        return np.bincount(self.query[:, 0], minlength=self.way).astype(np.int64)

    def __eq__(self, other: object) -> bool:
        """The same images of the same classes in the same roles, as `digest` sees them."""
        return self.digest() == other.digest() if isinstance(other, Episode) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """SHA-256 of the content: class names, support, query; not of source, seed or index."""
        sha = hashlib.sha256(b"episode/1\0")
        for name in self.class_names:
            encoded = name.encode()
            sha.update(len(encoded).to_bytes(8, "little") + encoded)
        for rows in (self.support, self.query):
            # Little-endian, a length in front: the same bytes on every machine, and no two contents alike.
            sha.update(b"\0rows" + len(rows).to_bytes(8, "little") + rows.astype("<i8").tobytes())
        return sha.hexdigest()


def episodes_digest(episodes: Iterable[Episode]) -> str:
    """SHA-256 of many episodes in order: equal digests mean that two results are of the same tasks."""
    sha = hashlib.sha256(b"episodes/1\0")
    for episode in episodes:
        sha.update(bytes.fromhex(episode.digest()))
    return sha.hexdigest()


_WORD = 2**32


class Purpose(IntEnum):
    """What a generator is for: two purposes never share numbers, even with the same seed and index."""

    EPISODE = 1
    MIXTURE = 2
    SHAPE = 3
    AUGMENTATION = 4
    IMAGE_SIZE = 5
    COMPANION = 6


def episode_generator(seed: int, index: int, purpose: Purpose, stream: int = 0) -> Generator:
    """The generator of episode `index`; `stream` keeps apart sources that are sampled with the same seed.

    Every entry must fit one 32-bit word: SeedSequence cuts larger numbers into several, and then two
    different tuples could mean the same sequence of words.
    """
    for what, value in (("seed", seed), ("episode index", index), ("stream", stream)):
        if not 0 <= value < _WORD:
            raise BadInputError(f"{what} is {value}; it must be in 0..{_WORD - 1}")
    return Generator(PCG64(SeedSequence([seed, index, int(purpose), stream])))


@dataclass(frozen=True)
class EpisodeBatch:
    """Support and query images (N x C x H x W) with their labels 0..way-1 (int64, N)."""

    way: int
    support_images: Tensor
    support_labels: Tensor
    query_images: Tensor
    query_labels: Tensor

    def __post_init__(self) -> None:
        for name, images, labels in (
            ("support", self.support_images, self.support_labels),
            ("query", self.query_images, self.query_labels),
        ):
            if images.ndim != 4 or labels.shape != images.shape[:1]:
                raise BadInputError(
                    f"{name} images have shape {tuple(images.shape)} and labels {tuple(labels.shape)}; "
                    "N x C x H x W and N are needed"
                )

    @classmethod
    def of(cls, episode: Episode, support_images: Tensor, query_images: Tensor) -> EpisodeBatch:
        """The episode's images, loaded in the order of its rows, joined to its labels."""
        device = support_images.device
        return cls(
            way=episode.way,
            support_images=support_images,
            support_labels=torch.tensor(episode.support[:, 0], device=device),
            query_images=query_images,
            query_labels=torch.tensor(episode.query[:, 0], device=device),
        )

    def to(self, device: torch.device | str) -> EpisodeBatch:
        """The same batch on another device."""
        return EpisodeBatch(
            self.way,
            self.support_images.to(device),
            self.support_labels.to(device),
            self.query_images.to(device),
            self.query_labels.to(device),
        )
