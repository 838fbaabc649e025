"""A recipe for training a backbone as a classifier; the defaults are the paper's for Meta-Dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.paths import below
from cl_cnaps.recipes import read_toml
from cl_cnaps.training.recipe import SourcePart
from cl_cnaps.training.tables import checked


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
    """A recipe from the content of a TOML file; it is called `name` if it does not say its own."""
    return PretrainRecipe(**checked(PretrainRecipe, {"name": name, **content}, where))
