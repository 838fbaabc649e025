"""Batches of labelled images by number: batch i of an epoch is a function of the seed, the epoch and i."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import PCG64, Generator, SeedSequence
from torch import Tensor
from torch.utils.data import Dataset

from cl_cnaps.errors import BadInputError
from cl_cnaps.training.class_pools import ClassPool
from cl_cnaps.training.image_augmentation import augmented_images
from cl_cnaps.training.pretrain_recipe import PretrainRecipe

_SPLIT, _ORDER, _CHANGE = 1, 2, 3
"""Purposes that never share random numbers."""


@dataclass(frozen=True)
class ImageBatch:
    """uint8 images and their labels."""

    number: int
    images: Tensor
    labels: Tensor


class ImageBatches(Dataset[ImageBatch]):
    """The batches of a training, numbered through all epochs; each image once an epoch, the last batch smaller."""

    def __init__(self, pool: ClassPool, recipe: PretrainRecipe, size: int) -> None:
        self.pool, self.recipe, self.size = pool, recipe, size
        self.classes = pool.split.classes.names
        self.training, self.validation = self._divided()
        if len(self.training) < 2:
            raise BadInputError(
                f"{pool.name} has {len(self.training)} images to train on; at least 2 are needed"
            )

    @property
    def per_epoch(self) -> int:
        """Batches in one epoch; a last batch of one image, which batch-norm cannot use, is not one."""
        whole, rest = divmod(len(self.training), self.recipe.batch_size)
        return whole + (rest > 1)

    def __getitem__(self, number: int) -> ImageBatch:
        epoch, place = divmod(number, self.per_epoch)
        order = self._random(_ORDER, epoch).permutation(len(self.training))
        size = self.recipe.batch_size
        rows = self.training[order[place * size : (place + 1) * size]]
        batch = self.load(rows, number)
        images = augmented_images(batch.images, self.recipe.augmentation, self._random(_CHANGE, number))
        return ImageBatch(number, images, batch.labels)

    def load(self, rows: np.ndarray, number: int = 0) -> ImageBatch:
        """Images as they are; rows of (class, image)."""
        images = torch.empty(len(rows), 3, self.size, self.size, dtype=torch.uint8)
        for label in np.unique(rows[:, 0]):
            own = np.flatnonzero(rows[:, 0] == label)
            images[torch.from_numpy(own)] = self.pool.images(
                self.classes[label], rows[own, 1].tolist(), self.size
            )
        return ImageBatch(number, images, torch.from_numpy(rows[:, 0].copy()))

    def _divided(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of (class, image) to train on, and to validate on: of each class its share, drawn once."""
        training, validation = [], []
        for label, count in enumerate(self.pool.split.classes.sizes):
            order = self._random(_SPLIT, label).permutation(count)
            held = round(self.recipe.validation_share * count)
            rows = np.stack([np.full(count, label), order], axis=1)
            validation.append(rows[:held])
            training.append(rows[held:])
        return np.concatenate(training), np.concatenate(validation)

    def _random(self, purpose: int, number: int) -> Generator:
        return Generator(PCG64(SeedSequence([self.recipe.seed, purpose, number])))
