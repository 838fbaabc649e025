"""A recipe for training a backbone as a classifier, and its batches: batch i is a function of the seed and i.

The defaults of the recipe are the paper's for Meta-Dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator, SeedSequence
from torch import Tensor, nn
from torch.utils.data import Dataset

from cl_cnaps.episodes.episode_images import images_of
from cl_cnaps.errors import BadInputError
from cl_cnaps.paths import below
from cl_cnaps.recipes import checked, read_toml
from cl_cnaps.training.class_pools import ClassPool
from cl_cnaps.training.looks import brightness
from cl_cnaps.training.recipe import SourcePart


@dataclass(frozen=True)
class ImageAugmentation:
    """What is done to each training image by itself."""

    crop_padding: int = 8
    """Pixels of mirrored border added on each side before a random crop of the input's size."""
    flip: bool = True
    """Mirror half of the images."""
    jitter: float = 0.4
    """Brightness, contrast and saturation are each multiplied by up to 1 more or less than this."""

    def __post_init__(self) -> None:
        if self.crop_padding < 0 or not 0 <= self.jitter < 1:
            raise BadInputError(
                f"crop_padding is {self.crop_padding} (at least 0 is needed), jitter {self.jitter} (0 to below 1)"
            )


@dataclass(frozen=True)
class PretrainRecipe:
    """One supervised training by SGD."""

    name: str
    source: SourcePart
    """Trains on the classes of its `train` split."""
    backbone: str = "resnet18"
    image_size: int | None = None
    epochs: int = 125
    batch_size: int = 256
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    drop_every: int = 25
    """Epochs after which the learning rate falls to `drop_factor` of what it was."""
    drop_factor: float = 0.1
    validation_share: float = 0.02
    """Images of each class that are not trained on, but scored after each epoch."""
    augmentation: ImageAugmentation = field(default_factory=ImageAugmentation)
    checkpoint_every: int = 500
    """Batches between two checkpoints."""
    pack: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        below(Path("--out"), self.name)
        for name in ("epochs", "batch_size", "drop_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise BadInputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.batch_size < 2:
            raise BadInputError("batch_size is 1; batch-norm needs at least 2 images")
        if not 0 < self.learning_rate < 1e38 or not 0 <= self.validation_share < 1:
            raise BadInputError("learning_rate must be positive, and validation_share from 0 to below 1")
        if self.source.train is None:
            raise BadInputError(f"recipe {self.name}: the source needs a split to train on (key `train`)")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, from 0."""
        return self.learning_rate * self.drop_factor ** (epoch // self.drop_every)

    def as_json(self) -> dict[str, Any]:
        """The whole recipe as JSON holds it."""
        return {**asdict(self), "source": self.source.as_json()}


def read_pretrain_recipe(path: Path) -> PretrainRecipe:
    """A recipe from its file."""
    return parse_pretrain_recipe(read_toml(path), path.name, path.stem)


def parse_pretrain_recipe(content: Mapping[str, Any], where: str, name: str) -> PretrainRecipe:
    """A recipe from the content of a TOML file; `name` is its name if the file gives none."""
    return PretrainRecipe(**checked(PretrainRecipe, {"name": name, **content}, where))


def augmented_images(images: Tensor, augmentation: ImageAugmentation, rng: Generator) -> Tensor:
    """uint8 images N x 3 x S x S, each changed by its own draws."""
    padding, count = augmentation.crop_padding, len(images)
    if padding:
        images = _cropped(images, padding, torch.from_numpy(rng.integers(0, 2 * padding + 1, (count, 2))))
    if augmentation.flip:
        mirrored = torch.from_numpy(rng.random(count) < 0.5)
        images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)
    if augmentation.jitter:
        factors = rng.uniform(1 - augmentation.jitter, 1 + augmentation.jitter, (count, 3))
        images = _jittered(images, torch.from_numpy(factors).float())
    return images


def _cropped(images: Tensor, padding: int, offsets_N2: Tensor) -> Tensor:
    size = images.shape[-1]
    padded = nn.functional.pad(images.float(), [padding] * 4, mode="reflect").to(torch.uint8)
    crops = [
        padded[i, :, top : top + size, left : left + size]
        for i, (top, left) in enumerate(offsets_N2.tolist())
    ]
    return torch.stack(crops)


def _jittered(images: Tensor, factors_N3: Tensor) -> Tensor:
    """Brightness, contrast and saturation times their factors, in this order."""
    light, contrast, saturation = (factor.view(-1, 1, 1, 1) for factor in factors_N3.unbind(1))
    x = (images.float() * light).clamp_(0, 255)
    mean = brightness(x).mean(dim=(2, 3), keepdim=True)
    x = (mean + (x - mean) * contrast).clamp_(0, 255)
    grey = brightness(x)
    return (grey + (x - grey) * saturation).round_().clamp_(0, 255).to(torch.uint8)


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
        epoch, position = divmod(number, self.per_epoch)
        order = self._random(_ORDER, epoch).permutation(len(self.training))
        size = self.recipe.batch_size
        rows = self.training[order[position * size : (position + 1) * size]]
        batch = self.load(rows, number)
        images = augmented_images(batch.images, self.recipe.augmentation, self._random(_CHANGE, number))
        return ImageBatch(number, images, batch.labels)

    def load(self, rows: np.ndarray, number: int = 0) -> ImageBatch:
        """Images as they are; rows of (class, image)."""
        images = images_of(self.pool.view, self.classes, rows, self.size)
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
