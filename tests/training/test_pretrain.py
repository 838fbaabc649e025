"""Supervised training of a backbone: which images it sees, how they are changed, when it stops."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.small import small_backbone
from training.small import ColourSource, Silence

from cl_cnaps.models.tensor_files import read_tensors
from cl_cnaps.training.class_pools import class_pool
from cl_cnaps.training.metatrain import Ending
from cl_cnaps.training.pretrain import Pretraining
from cl_cnaps.training.pretrain_data import ImageAugmentation, ImageBatches, PretrainRecipe, augmented_images
from cl_cnaps.training.recipe import SourcePart

RECIPE = PretrainRecipe(
    "small",
    SourcePart("red", train="train"),
    epochs=3,
    batch_size=16,
    learning_rate=0.05,
    drop_every=2,
    validation_share=0.25,
    augmentation=ImageAugmentation(crop_padding=2),
)


def batches(recipe: PretrainRecipe = RECIPE) -> ImageBatches:
    source = ColourSource("red")
    return ImageBatches(class_pool(recipe.source, "train", source, source, specs=None, seed=0), recipe, 32)


def pretraining(folder: Path, recipe: PretrainRecipe = RECIPE, resume: bool = False) -> Pretraining:
    return Pretraining(
        recipe,
        small_backbone(),
        batches(recipe),
        folder,
        torch.device("cpu"),
        Silence(),
        about={},
        resume=resume,
    )


def test_every_image_once_an_epoch_and_none_held_out() -> None:
    data = batches(replace(RECIPE, augmentation=ImageAugmentation(0, False, 0.0)))
    assert (len(data.training), len(data.validation), data.per_epoch) == (54, 18, 4)
    rows = {tuple(row) for row in np.concatenate([data.training, data.validation]).tolist()}
    assert len(rows) == 72, "each image is on one side, once"
    for epoch in (0, 1):
        seen = torch.cat([data[number].images for number in range(4 * epoch, 4 * epoch + 4)])
        assert len(torch.unique(seen.flatten(1), dim=0)) == len(seen) == 54
    assert [len(data[number].labels) for number in range(4)] == [16, 16, 16, 6]
    assert not torch.equal(data[0].labels, data[4].labels), "another order in another epoch"
    assert torch.equal(data[5].images, batches(data.recipe)[5].images)


def test_labels_belong_to_images() -> None:
    data = batches(replace(RECIPE, augmentation=ImageAugmentation(0, False, 0.0)))
    batch, source = data[2], ColourSource("red")
    for image, label in zip(batch.images, batch.labels.tolist(), strict=True):
        everything = source.images("train", data.classes[label], range(12), 32)
        assert any(torch.equal(image, other) for other in everything)


def test_a_last_batch_of_one_is_left_out() -> None:
    data = batches(replace(RECIPE, batch_size=53))
    assert data.per_epoch == 1


@pytest.mark.parametrize("part", ["crop", "flip", "jitter"])
def test_image_augmentation(part: str) -> None:
    images = torch.randint(
        0, 256, (6, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    setting = {
        "crop": ImageAugmentation(3, False, 0.0),
        "flip": ImageAugmentation(0, True, 0.0),
        "jitter": ImageAugmentation(0, False, 0.4),
    }[part]
    new = augmented_images(images, setting, np.random.default_rng(1))
    assert new.shape == images.shape
    assert new.dtype == torch.uint8
    assert torch.equal(new, augmented_images(images, setting, np.random.default_rng(1)))
    assert not torch.equal(new, images)
    if part == "flip":
        for old, image in zip(images, new, strict=True):
            assert torch.equal(image, old) or torch.equal(image, old.flip(2))
    if part == "crop":
        inner = torch.nn.functional.pad(images.float(), [3] * 4, mode="reflect").to(torch.uint8)
        for old, image in zip(inner, new, strict=True):
            places = [(i, j) for i in range(7) for j in range(7)]
            assert any(torch.equal(image, old[:, i : i + 16, j : j + 16]) for i, j in places)
    if part == "jitter":
        change = new.float().mean(dim=(1, 2, 3)) / images.float().mean(dim=(1, 2, 3))
        assert float(change.max() - change.min()) > 0.1, "each image has its own factor"


def test_it_learns(tmp_path: Path) -> None:
    training = pretraining(tmp_path, replace(RECIPE, epochs=12, drop_every=8))
    assert training.run() is Ending.FINISHED
    assert training.progress.accuracy is not None
    assert training.progress.accuracy > 0.6, "chance is one in six"
    rates = {
        json.loads(line)["learning_rate"]
        for line in (tmp_path / "log.jsonl").read_text().splitlines()
        if json.loads(line)["kind"] == "step"
    }
    assert sorted(rates) == pytest.approx([0.005, 0.05])


def test_a_loss_that_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = pretraining(tmp_path)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    prepare = training.backbone.prepare
    monkeypatch.setattr(training.backbone, "prepare", lambda images: prepare(images) * torch.nan)
    assert training.run() is Ending.NOT_FINITE
    assert json.loads((tmp_path / "not_finite.json").read_text()) == {"batch": 0, "epoch": 0}
    for name, tensor in training.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert not (tmp_path / "backbone.safetensors").exists()


def test_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretraining(tmp_path / "straight").run()
    training = pretraining(tmp_path / "stopped")
    plain, count = training._step, 0

    def signalled(batch: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(batch)

    monkeypatch.setattr(training, "_step", signalled)
    assert training.run() is Ending.INTERRUPTED
    assert training.progress.batches == 3
    resumed = pretraining(tmp_path / "stopped", resume=True)
    assert resumed.run() is Ending.FINISHED
    one, other = (read_tensors(tmp_path / name / "backbone.safetensors") for name in ("straight", "stopped"))
    assert list(one) == list(other)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
