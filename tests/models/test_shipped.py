"""The weights that come with the package: what they say of themselves, and that they agree with their logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from cl_cnaps.models.loading import load_model
from cl_cnaps.models.weights import describe, shipped_root
from cl_cnaps.training.recipe import HELD_OUT, read_recipe

TRAINING = Path(__file__).parents[2] / "benchmarks" / "training"
MEGABYTES = {"simple": 12, "transductive": 12, "transductive-plus": 12, "cnaps": 22}
"""Most that each may weigh; that of CNAPS has the network that generates its classifier."""
SHIPPED = tuple(MEGABYTES)


@pytest.mark.parametrize("model", SHIPPED)
def test_they_are_small_and_know_how_they_were_made(model: str) -> None:
    file = shipped_root() / f"{model}-efficientnet-lite0.safetensors"
    assert file.stat().st_size <= 1e6 * MEGABYTES[model]
    made = describe(file).training
    assert made["code"]["dirty"] is False
    assert made["ending"] == "finished"
    trained = {name for name, source in made["data"].items() if "train" in source}
    assert trained == {"omniglot", "quickdraw", "mini-imagenet", "cu_birds", "vgg_flower", "dtd"}
    assert not trained & set(HELD_OUT)
    assert all(len(source["digest"]) == 64 for source in made["data"].values())


@pytest.mark.parametrize("model", SHIPPED)
def test_the_recipe_in_benchmarks_is_theirs(model: str) -> None:
    name = f"{model}-efficientnet-lite0"
    made = describe(shipped_root() / f"{name}.safetensors").training["recipe"]
    now = json.loads(json.dumps(read_recipe(TRAINING / f"{name}.toml").as_json()))
    for part in (
        "sources",
        "tasks",
        "augmentation",
        "validation",
        "seed",
        "held_out",
        "start",
        "temperature",
    ):
        assert now[part] == made.get(part), part
    for part in ("model", "training"):  # settings that came later are at what they were without them
        assert {key: now[part].get(key) for key in now[part] if key in made[part]} == {
            key: value for key, value in made[part].items() if key in now[part]
        }


@pytest.mark.parametrize("model", SHIPPED)
def test_their_log_ends_with_what_they_say(model: str) -> None:
    name = f"{model}-efficientnet-lite0"
    made = describe(shipped_root() / f"{name}.safetensors").training
    lines = [json.loads(line) for line in (TRAINING / "logs" / f"{name}.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["kind"] == "validation"]
    if model == "transductive-plus":  # of which the start is no part
        validations = validations[1:]
    best = max(validations, key=lambda line: line["mean"]["adapted"])
    assert best["tasks"] == made["tasks"]
    assert best["adapted"] == made["validation"]["adapted"]
    assert best["mean"]["adapted"] > best["mean"]["frozen"]


@pytest.mark.parametrize("model", [*SHIPPED, "protonet"])
def test_they_are_the_default_and_modulate_by_task(model: str) -> None:
    plus = model == "transductive-plus"
    loaded = load_model(variant="plus") if plus else load_model(model)  # type: ignore[arg-type]
    assert loaded.model.config.adaptation == "film"
    images = torch.randint(0, 256, (2, 6, 3, 96, 96), generator=torch.Generator().manual_seed(0)).byte()
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    with torch.no_grad():
        dark, light = (
            loaded.model.adapt(loaded.model.encode(part, labels, part))
            for part in (images[0] // 8, images[1])
        )
    assert any(not torch.allclose(a, b) for a, b in zip(dark.gammas, light.gammas, strict=True))
    assert all(bool(torch.isfinite(gamma).all()) for gamma in dark.gammas)
