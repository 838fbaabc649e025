"""A data set in memory and a recipe over it, so that training takes milliseconds a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models.small import small_model
from PIL import Image

from cl_cnaps.data.source import CountedSource
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.training.metatrain import MetaTraining
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.recipe import Recipe, parse_recipe
from cl_cnaps.training.tasks import RecipeData, open_data


class ColourSource(CountedSource):
    """Noise around one colour per class; an image is a function of its class and number."""

    def __init__(self, name: str, classes: int = 12, images: int = 12) -> None:
        counts = {f"group{k // 4}/class{k:02d}": images for k in range(classes)}
        splits = {
            "train": dict(list(counts.items())[: classes // 2]),
            "val": dict(list(counts.items())[classes // 2 :]),
        }
        super().__init__(name, "made up", splits)

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        number = int(class_name[-2:])
        colour = np.random.default_rng(number).integers(0, 150, 3)
        noise = np.random.default_rng([number, index, len(self.name)]).integers(0, 100, (32, 32, 3))
        return Image.fromarray((colour + noise).astype(np.uint8))

    def where(self, split: str, class_name: str, index: int) -> str:
        return f"{class_name} {index}"

    def digest(self) -> str:
        return f"colours {self.name}"


RECIPE: dict[str, Any] = {
    "pack": False,
    "sources": [
        {"name": "red", "train": "train", "validate": "val"},
        {"name": "blue", "train": "train", "validate": "val", "weight": 2.0},
    ],
    "tasks": {"ways": [2, 4], "shots": [1, 3], "queries": 2},
    "augmentation": {"low_resolution": 16, "low_resolution_share": 0.5, "invert_share": 0.3},
    "training": {"tasks": 12, "tasks_per_step": 4, "learning_rate": 0.01, "checkpoint_every": 4},
    "validation": {"every": 8, "tasks": 2},
}


def small_recipe(**changes: Mapping[str, Any] | Any) -> Recipe:
    """The recipe above; a table given here is merged into its own."""
    content = {
        key: {**value, **changes.get(key, {})} if isinstance(value, dict) else value
        for key, value in RECIPE.items()
    }
    content |= {key: value for key, value in changes.items() if not isinstance(RECIPE.get(key), dict)}
    return parse_recipe(content, "small.toml", "small")


def small_data(recipe: Recipe) -> RecipeData:
    return open_data(recipe, 32, find=ColourSource)


@dataclass
class Silence:
    """A watch that remembers what it was told."""

    said: list[str] = field(default_factory=list)
    validations: list[tuple[int, float]] = field(default_factory=list)
    steps: int = 0

    def step(self, *_: Any) -> None:
        self.steps += 1

    def validated(self, tasks: int, scores: Any, *_: Any) -> None:
        own = scores["own"]
        self.scores = scores
        self.validations.append((tasks, sum(own.values()) / len(own)))

    def validating(self, *_: Any) -> None:
        pass

    def say(self, text: str) -> None:
        self.said.append(text)


def one_process() -> Ranks:
    return Ranks(0, 1, 0, torch.device("cpu"))


def small_training(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    ranks: Ranks | None = None,
    name: Any = "simple",
    dtype: torch.dtype = torch.float32,
) -> MetaTraining:
    """A training of the small model, whose set encoder has batch-norm."""
    model: CnapsModel = small_model(name).to(dtype)
    return MetaTraining(
        recipe, model, small_data(recipe), folder, ranks or one_process(), Silence(), about={}, resume=resume
    )
