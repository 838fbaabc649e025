"""Recipes with what the command line says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cl_cnaps.errors import BadInputError
from cl_cnaps.training.recipe import Recipe, read_changed_recipe, read_recipe

TRAINING = Path(__file__).parents[2] / "benchmarks" / "training"


def changed(stem: str, **changes: Any) -> Recipe:
    return read_changed_recipe(TRAINING / f"{stem}.toml", changes)


def test_what_is_not_given_is_the_recipes() -> None:
    plain = read_recipe(TRAINING / "small.toml")
    assert changed("small", metric=None, variant=None, tasks=None) == plain
    other = changed("small", tasks=3, seed=7, start="mine")
    assert (other.training.tasks, other.seed, other.start, other.name) == (3, 7, "mine", plain.name)
    assert other.model == plain.model
    assert changed("small", metric=plain.model.metric).name == plain.name, "nothing has changed"


@pytest.mark.parametrize(
    ("stem", "changes", "settings", "suffix"),
    [
        ("small", {"metric": "cosine"}, {"metric": "cosine"}, "cosine"),
        ("small", {"variant": "gmm"}, {"variant": "gmm"}, "gmm"),
        ("transductive-efficientnet-lite0", {"variant": "plus"}, {"variant": "plus"}, "plus"),
        (
            "transductive-plus-efficientnet-lite0",
            {"responsibilities": "calibrated"},
            {"responsibilities": "calibrated"},
            "calibrated",
        ),
        ("transductive-plus-efficientnet-lite0", {"variant": "plain"}, {"variant": "plain"}, "plain"),
        (
            "transductive-efficientnet-lite0",
            {"variant": "feot", "metric": "l1"},
            {"variant": "feot", "metric": "l1"},
            "l1-feot",
        ),
        (
            "transductive-efficientnet-lite0",
            {"refine_max": "unbounded"},
            {"refine_min": 2, "refine_max": "unbounded"},
            "refine-2-unbounded",
        ),
        (
            "transductive-efficientnet-lite0",
            {"refine_max": 0, "variant": "plus"},
            {"refine_min": 0, "refine_max": 0, "variant": "plus"},
            "plus-refine-0-0",
        ),
    ],
)
def test_settings_are_in_the_recipes_name(
    stem: str, changes: dict[str, Any], settings: dict[str, Any], suffix: str
) -> None:
    plain, recipe = read_recipe(TRAINING / f"{stem}.toml"), changed(stem, **changes)
    assert recipe.name == f"{plain.name}-{suffix}"
    there = recipe.as_json()["model"]
    there.pop("responsibilities", None)  # of models that refine alone
    assert there == {
        key: value
        for key, value in {**plain.model.as_json(), **settings}.items()
        if value != "plain" and key != "responsibilities"
    }


def test_a_variant_decides_the_model(tmp_path: Path) -> None:
    text = (TRAINING / "small.toml").read_text().replace('model = "simple"\n', "")
    (tmp_path / "any.toml").write_text(text)
    assert read_recipe(tmp_path / "any.toml").model.model == "simple"
    assert read_changed_recipe(tmp_path / "any.toml", {"variant": "plus"}).model.model == "transductive"


def test_unbounded_refinement_of_the_recipe_stays_so(tmp_path: Path) -> None:
    text = (TRAINING / "transductive-efficientnet-lite0.toml").read_text()
    (tmp_path / "free.toml").write_text(text.replace("[model]\n", '[model]\nrefine_max = "unbounded"\n'))
    model = read_changed_recipe(tmp_path / "free.toml", {"refine_min": 0}).model
    assert (model.refine_min, model.refine_max) == (0, "unbounded")


@pytest.mark.parametrize(
    ("stem", "changes", "says"),
    [
        ("small", {"refine_max": 3}, "--refine-max is for models that refine, not for simple"),
        (
            "transductive-efficientnet-lite0",
            {"variant": "feot", "refine_min": 1},
            "for models that refine, not for feot",
        ),
        (
            "small",
            {"responsibilities": "raw"},
            "--responsibilities is for models that refine, not for simple",
        ),
        ("small", {"variant": "plus"}, "plus is a variant of the model transductive, not of simple"),
        ("transductive-efficientnet-lite0", {"metric": "l1"}, "the refinement is Mahalanobis's"),
    ],
)
def test_what_is_refused(stem: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        changed(stem, **changes)
