"""The weights that come with the package: what they say of themselves, and that they agree with their logs."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pytest
import torch

from cl_cnaps.gaussian import FIT_RULES
from cl_cnaps.models.adaptation import COLUMNS, film_distance
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.weights import describe, shipped_root
from cl_cnaps.training.recipe import HELD_OUT, read_recipe

TRAINING = Path(__file__).parents[2] / "benchmarks" / "training"
MEGABYTES = 12
"""Most that each may weigh."""
SHIPPED = ("simple", "transductive", "transductive-plus", "cnaps", "fit-qda", "fit-lda")
TESTED = {
    "n02966193", "n03017168", "n03476684", "n03838899", "n03854065", "n04067472", "n04243546", "n04251144",
    "n04258138", "n04275548", "n04515003", "n02950826", "n03075370", "n03773504",
}  # fmt: skip
"""Test classes of Meta-Dataset's ImageNet that mini-ImageNet has among its training and validation classes."""


@pytest.mark.parametrize("model", SHIPPED)
def test_they_are_small_and_know_how_they_were_made(model: str) -> None:
    file = shipped_root() / f"{model}-efficientnet-lite0.safetensors"
    assert file.stat().st_size <= 1e6 * MEGABYTES
    made = describe(file).training
    assert made["code"]["dirty"] is False
    assert made["ending"] == "finished"
    trained = {name for name, source in made["data"].items() if "train" in source}
    assert trained == {"omniglot", "glyphs", "quickdraw", "mini-imagenet", "cu_birds", "vgg_flower"}
    assert not trained & set(HELD_OUT)
    mini = next(part for part in made["recipe"]["sources"] if part["name"] == "mini-imagenet")
    assert set(mini["leave_out"]) == TESTED
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
        "temperature",
    ):
        assert now[part] == made.get(part), part
    # The simple weights go on from an earlier file of the same recipe, whose log is beside theirs.
    assert made.get("start") == (name if model == "simple" else now["start"])
    if model == "transductive-plus":  # trained before `auto` became raw there
        assert (now["model"].pop("responsibilities"), made["model"].pop("responsibilities")) == (
            "raw",
            "auto",
        )
    assert now["model"] == made["model"]
    # The rate is constant, so that a training can be ended before the recipe's last task, and go on later.
    assert made["training"].pop("tasks") <= now["training"].pop("tasks")
    assert now["training"] == made["training"]


@pytest.mark.parametrize("model", SHIPPED)
def test_their_log_ends_with_what_they_say(model: str) -> None:
    name = f"{model}-efficientnet-lite0"
    made = describe(shipped_root() / f"{name}.safetensors").training
    lines = [json.loads(line) for line in (TRAINING / "logs" / f"{name}.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["kind"] == "validation"]
    if model == "transductive-plus":  # of which the start is no part
        validations = validations[1:]
    best = max(validations, key=lambda line: line["mean"]["own"])
    assert best["tasks"] == made["tasks"]
    assert {column: best[column] for column in COLUMNS} == made["validation"]


def test_the_adaptation_adapts() -> None:
    """On validation tasks: own above static on average, far above swapped, and above frozen on every source."""
    validation = describe(shipped_root() / "simple-efficientnet-lite0.safetensors").training["validation"]
    means = {column: fmean(scores.values()) for column, scores in validation.items()}
    assert means["own"] > means["static"] + 0.01
    assert means["own"] > means["swapped"] + 0.02
    assert all(validation["own"][source] > frozen for source, frozen in validation["frozen"].items())


def test_film_differs_between_sources_as_it_does_from_the_identity() -> None:
    model = load_model("simple").model
    films = [model.adapt(mean_64) for mean_64 in model.source_encodings.values()]
    identity = model.adapt(None)
    from_identity = fmean(film_distance(film, identity) for film in films)
    apart = fmean(film_distance(one, other) for one, other in combinations(films, 2))
    assert apart > from_identity / 4


@pytest.mark.parametrize("model", [*SHIPPED, "protonet"])
def test_they_are_the_default_and_modulate_by_task(model: str) -> None:
    if model == "transductive-plus":
        loaded = load_model(variant="plus")
    elif model in FIT_RULES:
        loaded = load_model("simple", metric=model)
    else:
        loaded = load_model(model)
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


def test_the_training_under_way_gave_what_the_docs_have_of_it() -> None:
    page = (TRAINING.parents[1] / "docs" / "training.md").read_text()
    name = "simple-efficientnet-lite0-looks"
    parts = [
        [
            line
            for line in map(json.loads, (TRAINING / "logs" / log).read_text().splitlines())
            if line["kind"] == "validation"
        ]
        for log in (f"{name}-first.jsonl", f"{name}.jsonl")
    ]
    made = describe(TRAINING / f"{name}.safetensors").training
    best = max(parts[1], key=lambda line: line["mean"]["own"])
    assert {column: best[column] for column in COLUMNS} == made["validation"]
    assert made["code"]["dirty"] is False and made["ending"] == "finished"
    (start, end), (again, middle, last) = parts
    assert [line["tasks"] for part in parts for line in part] == [0, 2000, 0, 2000, 2864]
    said = [
        *((one["mean"]["own"], other["mean"]["own"]) for one, other in ((start, end), (again, middle))),
        *((start["own"][source], end["own"][source]) for source in ("omniglot", "quickdraw", "mscoco")),
        *((again["own"][source], middle["own"][source]) for source in ("mini-imagenet", "cu_birds")),
        (again["mean"]["static"], middle["mean"]["static"]),
    ]
    words = " ".join(page.split())
    for before, after in said:
        assert f"{100 * before:.1f} to {100 * after:.1f}" in words
    assert f"and {100 * last['mean']['own']:.1f} after 2,864" in words
    assert f"({100 * middle['own']['mscoco']:.1f} against {100 * middle['static']['mscoco']:.1f})" in words


def test_the_trial_with_mixed_tasks_gave_what_the_docs_have_of_it() -> None:
    lines = (TRAINING / "logs" / "simple-efficientnet-lite0-mixed.jsonl").read_text().splitlines()
    start, end = (line for line in map(json.loads, lines) if line["kind"] == "validation")
    assert (start["tasks"], end["tasks"]) == (0, 1000)
    assert abs(end["mean"]["own"] - start["mean"]["own"]) < 0.005
    assert all(end["mean"][kind] - start["mean"][kind] > 0.01 for kind in ("static", "swapped"))
    assert end["own"]["mscoco"] < end["frozen"]["mscoco"] < start["own"]["mscoco"]
