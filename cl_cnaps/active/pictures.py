"""The images of one run by number: all that a learner can ask of them is how they look."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.data.source import empty_images
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.episode_images import SPLIT


class Pictures:
    """Images 0, 1, ... of one task. Where an image lies tells its class, so its place is kept private."""

    def __init__(self, source: Source, class_names: tuple[str, ...], rows: IntArray, size: int) -> None:
        self._source = source
        self._class_names = class_names
        self._rows = rows
        self._size = size

    def __len__(self) -> int:
        return len(self._rows)

    def pixels(self, numbers: IntArray) -> Tensor:
        """Images of these numbers: uint8, N x 3 x size x size; of a source of features these."""
        rows = self._rows[numbers]
        images = empty_images(self._source, len(rows), self._size)
        for position in dict.fromkeys(rows[:, 0].tolist()):
            mine = torch.from_numpy(rows[:, 0] == position)
            wanted = rows[rows[:, 0] == position, 1].tolist()
            images[mine] = self._source.images(SPLIT, self._class_names[position], wanted, self._size)
        return images
