"""Features that do not depend on the task: embedded once, for every task that uses the image or into a feature file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.data.atomic import naming
from cl_cnaps.data.feature_files import FeatureTable
from cl_cnaps.data.source import VERSION, CountedSource, total
from cl_cnaps.episodes import Episode
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.episode_images import SPLIT
from cl_cnaps.models.adaptation import CompactAdaptation, substitute
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film, FoldedNetwork
from cl_cnaps.torch_setup import check_memory


@torch.no_grad()
def constant_film(model: CnapsModel) -> Film | None:
    """The FiLM parameters of every task if all tasks have the same; None if they depend on the task.

    They are the same without adaptation, with static modulation, and while a generator's heads ignore the encoding, as
    untrained ones do.
    """
    if model.config.adaptation == "none":
        return model.adapt(None)
    if model.config.modulation == "static" and model.source_encodings:
        like = next(model.adaptation.parameters())
        return model.adapt(substitute("static", like.new_zeros(ENCODING_WIDTH), model.source_encodings))
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

    def digest(self) -> str:
        """Of which images the rows are."""
        used = [(name, indices.tolist()) for name, indices in self.images]
        return hashlib.sha256(repr(used).encode()).hexdigest()[:32]

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
        rows = model.embed_folded(images, self._network).cpu().numpy().astype(np.float32, copy=False)
        # Written, not mapped: on a full disk a map ends the process, and a write is an error that can be named.
        with naming(self.file), self.file.open("r+b") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            file.seek(unit.first_row * rows.itemsize * rows.shape[1], os.SEEK_CUR)
            file.write(np.ascontiguousarray(rows).tobytes())
        return len(images)


def empty_table(file: Path, rows: int, width: int) -> None:
    """Make a file for so many features, of which only the header is there."""
    kind = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    header = {"descr": kind, "fortran_order": False, "shape": (rows, width)}
    with naming(file), file.open("wb") as empty:
        np.lib.format.write_array_header_1_0(empty, header)


def map_table(file: Path) -> Tensor:
    """All features, mapped from their file: N x D; not to be written to."""
    # Mapped copy-on-write, since PyTorch has no tensors that cannot be written to.
    return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))


_CHUNK = 256
"""Images read and embedded between two reports of progress."""


def embed_source(
    source: CountedSource, model: CnapsModel, progress: Callable[[int], None] = lambda _: None
) -> FeatureTable:
    """Embed every image of a source with a model's frozen backbone.

    `progress` is called with the number of images embedded since the last call.
    """
    info = model.backbone.info
    count = total(source)
    check_memory(4 * count * info.width, f"embedding {count:,} images of {source.name}")
    class_names = merged([source.classes(split) for split in source.splits])
    number = {name: position for position, name in enumerate(class_names)}
    features = np.empty((count, info.width), np.float32)
    labels: list[int] = []
    splits: list[str] = []
    network = model.fold(model.adapt(None))
    for split in source.splits:
        for class_name in source.classes(split):
            images = source.count(split, class_name)
            for first in range(0, images, _CHUNK):
                chunk = range(first, min(first + _CHUNK, images))
                pixels = source.images(split, class_name, chunk, info.image_size)
                rows = slice(len(labels), len(labels) + len(chunk))
                features[rows] = model.embed_folded(pixels, network).cpu().numpy()
                labels += [number[class_name]] * len(chunk)
                splits += [split] * len(chunk)
                progress(len(chunk))
    metadata = {
        "source": source.name,
        "source_digest": source.digest(),
        "backbone": info.name,
        "backbone_digest": model.backbone.digest(),
        "backbone_weights": info.weights_source,
        "pretraining": info.pretraining,
        "image_size": info.image_size,
        "decoding": VERSION,
    }
    return FeatureTable.of(features, np.array(labels), np.array(splits), class_names, metadata)


def merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """Return all names in one order, in which those of each sequence keep theirs wherever the sequences agree."""
    names: list[str] = []
    for order in orders:
        position = 0
        for name in order:
            if name in names:
                position = names.index(name) + 1
            else:
                names.insert(position, name)
                position += 1
    return names
