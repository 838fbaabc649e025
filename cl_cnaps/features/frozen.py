"""Features that do not depend on the task: embedded once and looked up by every task that uses the image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.episodes import Episode
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.episode_images import SPLIT
from cl_cnaps.models.adaptation import CompactAdaptation
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film, FoldedNetwork


@torch.no_grad()
def constant_film(model: CnapsModel) -> Film | None:
    """The FiLM parameters of every task if all tasks have the same; None if they depend on the task.

    They are the same without adaptation, and while a generator's heads ignore the encoding, as untrained ones do.
    """
    if model.config.adaptation == "none":
        return model.adapt(None)
    generator = model.adaptation
    if isinstance(generator, CompactAdaptation):
        weights = [weight for name, weight in generator.heads.named_parameters() if name.endswith("weight")]
        if not any(bool(weight.any()) for weight in weights):
            return model.adapt(weights[0].new_zeros(ENCODING_WIDTH))
    return None


@dataclass(frozen=True)
class Chunk:
    """Images that are embedded together, class by class, and the row of the first."""

    first_row: int
    images: list[tuple[str, list[int]]]


class FeatureRows:
    """Which row of a table of features belongs to which image, for the images that some tasks use."""

    def __init__(self, episodes: Iterable[Episode], source: Source) -> None:
        used: dict[str, np.ndarray] = {}
        for episode in episodes:
            for rows in (episode.support, episode.query):
                for position, name in enumerate(episode.class_names):
                    if name not in used:
                        used[name] = np.zeros(source.count(SPLIT, name), dtype=bool)
                    used[name][rows[rows[:, 0] == position, 1]] = True
        self.images: list[tuple[str, IntArray]] = []
        """Class by class, the images in the order of their rows."""
        self._row_of: dict[str, IntArray] = {}
        self.count = 0
        for name in sorted(used):
            indices = np.flatnonzero(used[name])
            self._row_of[name] = np.full(len(used[name]), -1, dtype=np.int64)
            self._row_of[name][indices] = np.arange(self.count, self.count + len(indices))
            self.images.append((name, indices))
            self.count += len(indices)

    def of(self, class_names: Sequence[str], rows: IntArray) -> IntArray:
        """The rows of an episode's images."""
        return np.array([self._row_of[class_names[k]][i] for k, i in rows.tolist()], dtype=np.int64)

    def in_chunks(self, size: int) -> list[Chunk]:
        """All images in pieces of `size`, the last one smaller; a piece may span classes."""
        chunks: list[Chunk] = []
        room = 0
        row = 0
        for name, indices in self.images:
            left = indices.tolist()
            while left:
                if room == 0:
                    chunks.append(Chunk(row, []))
                    room = size
                chunks[-1].images.append((name, left[:room]))
                taken = len(left[:room])
                left, room, row = left[taken:], room - taken, row + taken
        return chunks


@dataclass
class EmbedOnce:
    """Work: embed chunks of images and write their features to a table in a file, N x D float32."""

    source: Source
    file: Path
    _network: FoldedNetwork | None = field(default=None, repr=False)

    def __call__(self, model: CnapsModel, unit: Chunk) -> int:
        """Embed one chunk; returns the number of its images."""
        if self._network is None:
            film = constant_film(model)
            assert film is not None
            self._network = model.fold(film)
        size = model.backbone.info.image_size
        images = torch.cat([self.source.images(SPLIT, name, part, size) for name, part in unit.images])
        table = np.load(self.file, mmap_mode="r+", allow_pickle=False)
        features = model.embed_folded(images, self._network)
        table[unit.first_row : unit.first_row + len(images)] = features.cpu().numpy()
        return len(images)


def empty_table(file: Path, rows: int, width: int) -> None:
    """A file for so many features."""
    np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(rows, width)).flush()


def read_features(file: Path) -> Tensor:
    """All features, mapped from their file: N x D; not to be written to."""
    # Mapped copy-on-write, since PyTorch has no tensors that cannot be written to.
    return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
