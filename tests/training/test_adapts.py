"""Does the adaptation adapt? Two domains that no single FiLM can serve, and the columns that would show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from training.small import Silence, one_process

from cl_cnaps.data.source import CountedSource
from cl_cnaps.models.backbones import Backbone, norm_layers
from cl_cnaps.models.cnaps import CnapsConfig, make_model
from cl_cnaps.models.encoders import SetEncoderConfig
from cl_cnaps.models.networks import BackboneInfo
from cl_cnaps.training.metatrain import MetaTraining
from cl_cnaps.training.recipe import parse_recipe
from cl_cnaps.training.tasks import open_data
from cl_cnaps.training.validation import Scores, mean

STEPS = 150


class Channels(nn.Module):
    """The mean of each colour, modulated."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1, bias=False), nn.BatchNorm2d(3)
        nn.init.dirac_(self.conv.weight)

    def forward(self, x: Tensor) -> Tensor:
        return 4 * self.bn(self.conv(x)).mean(dim=(2, 3))


class TwoDomains(CountedSource):
    """One colour is the class and another is noise; which is which depends on the domain, and blue gives it away."""

    def __init__(self, name: str) -> None:
        self.signal = ("red", "green").index(name)
        super().__init__(
            name, "made up", {split: {f"{split}{k:02d}": 8 for k in range(20)} for split in ("train", "val")}
        )

    def image(self, split: str, class_name: str, index: int) -> Image.Image:
        number = int(class_name[-2:]) + 20 * (split == "val")
        rng = np.random.default_rng([number, index, self.signal])
        pixels = np.full((32, 32, 3), 128.0)
        pixels[..., self.signal] = np.random.default_rng([number, self.signal]).integers(20, 230)
        pixels[..., 1 - self.signal] = rng.integers(20, 230)
        pixels[..., 2] += 4 if self.signal else -4
        pixels += rng.normal(0, 4, pixels.shape)
        return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))

    def where(self, split: str, class_name: str, index: int) -> str:
        return f"{split} {class_name} {index}"

    def digest(self) -> str:
        return f"two domains {self.name}"


def trained(encoder: SetEncoderConfig, folder: Path) -> Scores:
    """Accuracy of each modulation after a short training."""
    recipe = parse_recipe(
        {
            "pack": False,
            "model": {"metric": "euclidean"},
            "sources": [{"name": name, "train": "train", "validate": "val"} for name in ("red", "green")],
            "tasks": {"ways": [4, 4], "shots": [2, 2], "queries": 3},
            "training": {
                "tasks": 4 * STEPS,
                "tasks_per_step": 4,
                "learning_rate": 0.02,
                "film_regulariser": 0.0,
            },
            "validation": {"every": 10**6, "tasks": 25, "patience": 0},
        },
        "two.toml",
        "two",
    )
    half = (0.5, 0.5, 0.5)
    network = Channels()
    info = BackboneInfo("channels", 32, half, half, 3, "made up", "none")
    backbone = Backbone(network, info, norm_layers(network))
    model = make_model(CnapsConfig(metric="euclidean", backbone="channels", encoder=encoder), backbone)
    watch = Silence()
    data = open_data(recipe, 32, find=TwoDomains)
    MetaTraining(recipe, model, data, folder, one_process(), watch, about={}).run()
    return watch.scores


def adapts(scores: Scores) -> bool:
    """Whether own is well above the other columns."""
    own = mean(scores["own"])
    return (
        own > mean(scores["static"]) + 0.15
        and own > mean(scores["swapped"]) + 0.3
        and min(scores["own"].values()) > mean(scores["frozen"]) + 0.1
    )


def test_own_is_well_above_static(tmp_path: Path) -> None:
    assert adapts(trained(SetEncoderConfig(kind="backbone", standardise=True), tmp_path))


def test_the_encoder_as_it_was_fails(tmp_path: Path) -> None:
    """Nearly the same vector for every task."""
    encoder = SetEncoderConfig(kind="convolutional", standardise=False, norm="group", image_size=32)
    scores = trained(encoder, tmp_path)
    assert not adapts(scores)
    assert mean(scores["own"]) == pytest.approx(mean(scores["static"]), abs=0.03)


def test_the_columns_are_one_before_training(tmp_path: Path) -> None:
    torch.manual_seed(0)
    recipe_folder = tmp_path / "untrained"
    scores = trained_for_no_step(recipe_folder)
    assert scores["own"] == scores["static"] == scores["swapped"] == scores["frozen"]


def trained_for_no_step(folder: Path) -> Scores:
    """The columns at the first validation, when FiLM is the identity."""

    class First(Silence):
        first: Scores | None = None

        def validated(self, tasks: int, scores: Scores, *_: object) -> None:
            self.first = self.first or scores

    recipe = parse_recipe(
        {
            "pack": False,
            "sources": [{"name": name, "train": "train", "validate": "val"} for name in ("red", "green")],
            "tasks": {"ways": [4, 4], "shots": [2, 2], "queries": 3},
            "training": {"tasks": 2, "tasks_per_step": 2, "learning_rate": 0.02},
            "validation": {"every": 10, "tasks": 3, "patience": 0},
        },
        "two.toml",
        "two",
    )
    network, half = Channels(), (0.5, 0.5, 0.5)
    info = BackboneInfo("channels", 32, half, half, 3, "made up", "none")
    model = make_model(CnapsConfig(backbone="channels"), Backbone(network, info, norm_layers(network)))
    watch = First()
    data = open_data(recipe, 32, find=TwoDomains)
    MetaTraining(recipe, model, data, folder, one_process(), watch, about={}).run()
    assert watch.first is not None
    return watch.first
