"""Averaged weights: what they are, and that a training resumes with them exactly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from training.small import small_recipe, small_training
from training.test_metatrain import same_state

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.step import AveragedWeights, image_size


def test_the_average_is_between_the_weights() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    average = AveragedWeights(model, 0.9)
    for step in range(200):
        nn.init.constant_(model.weight, float(step))
        average.update()
    with average.in_place():
        inside = float(model.weight.detach())
    assert float(model.weight.detach()) == 199.0
    assert 185 < inside < 195  # ten steps behind


def test_without_a_decay_nothing_is_averaged_or_kept() -> None:
    model = nn.Linear(1, 1)
    average = AveragedWeights(model, 0.0)
    average.update()
    assert average.state() == {}
    with average.in_place():
        assert torch.equal(model.weight, model.weight)
    with pytest.raises(ClCnapsError, match="averaged weights"):
        AveragedWeights(model, 0.9).load({})


@pytest.mark.parametrize("sizes", [[], [32, 48]])
def test_resuming_is_exact(tmp_path: Path, sizes: list[int]) -> None:
    recipe = small_recipe(
        training={"average": 0.9, "image_sizes": sizes, "image_size_weights": [1.0, 2.0] if sizes else []}
    )
    small_training(recipe, tmp_path / "whole").run()
    first = small_training(recipe, tmp_path / "parts")
    stop_after(first, 8)
    small_training(recipe, tmp_path / "parts", resume=True).run()
    same_state(tmp_path / "whole", tmp_path / "parts")


def stop_after(training: object, tasks: int) -> None:
    """Run until so many tasks are done, as if a signal had come then."""
    import signal

    def step(done: int, *_: object) -> None:
        if done >= tasks:
            signal.raise_signal(signal.SIGTERM)

    training.watch.step = step  # type: ignore[attr-defined]
    training.run()  # type: ignore[attr-defined]


def test_sizes_are_drawn_by_their_weights() -> None:
    training = Optimisation(tasks=10, image_sizes=(64, 96), image_size_weights=(1.0, 3.0))
    drawn = [image_size(training, 0, first, 84) for first in range(400)]
    assert drawn == [image_size(training, 0, first, 84) for first in range(400)]
    assert 250 < sum(size == 96 for size in drawn) < 350
    assert image_size(Optimisation(tasks=10), 0, 0, 84) == 84


@pytest.mark.parametrize(
    "settings",
    [
        {"image_sizes": (4,)},
        {"image_sizes": (64, 96), "image_size_weights": (1.0,)},
        {"image_sizes": (64,), "image_size_weights": (-1.0,)},
        {"average": 1.0},
        {"activations_gb": 0.0},
        {"activations_gb": 1.0, "images_at_once": 3},
    ],
)
def test_what_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(BadInputError):
        Optimisation(tasks=10, **settings)  # type: ignore[arg-type]
