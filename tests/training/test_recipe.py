"""Recipes: read strictly, refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.small import RECIPE, small_recipe

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.training.pretrain_data import parse_pretrain_recipe, read_pretrain_recipe
from cl_cnaps.training.recipe import MetaDatasetConfig, RangeTasks, parse_recipe, read_recipe

SHIPPED = sorted((Path(__file__).parents[2] / "benchmarks" / "training").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_recipe_of_the_project_can_be_read(path: Path) -> None:
    if path.stem.startswith("pretrain"):
        assert read_pretrain_recipe(path).name == path.stem
        return
    recipe = read_recipe(path)
    assert recipe.name == path.stem
    trained = {part.name for part in recipe.sources if part.train}
    assert not trained & {"mnist", "cifar10", "cifar100", "traffic_sign", "mscoco"}


def test_the_papers_settings() -> None:
    recipe = read_recipe(next(path for path in SHIPPED if path.stem == "simple-resnet18-meta-dataset"))
    assert (recipe.training.tasks, recipe.training.tasks_per_step) == (110_000, 16)
    assert recipe.training.learning_rate == 5e-4
    assert recipe.training.film_regulariser == 0.001
    assert recipe.validation.every == 10_000
    assert not recipe.model.learned_temperature
    assert isinstance(recipe.tasks, MetaDatasetConfig)
    assert len([part for part in recipe.sources if part.train]) == 8
    assert [part.name for part in recipe.sources if part.validate and not part.train] == ["mscoco"]


def test_variants_and_metrics() -> None:
    assert small_recipe(model={"variant": "plus"}).model.model == "transductive"
    assert small_recipe(model={"variant": "plus"}).as_json()["model"]["variant"] == "plus"
    assert "variant" not in small_recipe().as_json()["model"]
    assert small_recipe(model={"variant": "cot", "refine_max": "unbounded"}).model.refine_max == "unbounded"
    plus = read_recipe(
        next(path for path in SHIPPED if path.stem == "transductive-plus-resnet18-meta-dataset")
    )
    assert plus.model.variant == "plus"
    root = read_recipe(next(path for path in SHIPPED if path.stem.startswith("root-riemannian")))
    assert (root.model.metric, root.training.clip_norm) == ("root-riemannian", 5.0)
    assert not root.model.learned_temperature


def test_tables_become_dataclasses() -> None:
    recipe = small_recipe(model={"model": "transductive", "encoder": {"norm": "batch"}})
    assert recipe.model.encoder.norm == "batch"
    assert recipe.tasks == RangeTasks((2, 4), (1, 3), 2)
    assert recipe.name == "small"
    assert recipe.as_json()["tasks"]["sampler"] == "ranges"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sped": 1}, "unknown key 'sped'"),
        ({"training": {"taks": 3}}, "training has an unknown key 'taks'"),
        ({"training": {"tasks": 1.5}}, "training.tasks must be a whole number"),
        ({"training": {"tasks": True}}, "training.tasks must be a whole number"),
        ({"training": {"schedule": "linear"}}, "must be one of 'constant', 'cosine'"),
        ({"model": {"model": "simple", "variant": "plus"}}, "plus is a variant of the model transductive"),
        ({"model": {"variant": "gmm", "metric": "cosine"}}, "the variant gmm has its own logits"),
        (
            {"model": {"model": "transductive", "metric": "dot"}},
            "metric of the model transductive cannot be chosen",
        ),
        (
            {"model": {"refine_max": "endless"}},
            "model.refine_max must be a whole number.*; or one of unbounded",
        ),
        ({"training": {"images_at_once": 0}}, "images_at_once is 0"),
        ({"model": {"adaptation": "none"}}, "nothing to train"),
        ({"temperature": 0}, "temperature is 0.*; it must be positive"),
        ({"temperature": 2, "model": {"learned_temperature": False}}, "the model's learned_temperature true"),
        ({"model": {"encoder": {"nrm": "batch"}}}, "model.encoder has an unknown key 'nrm'"),
        ({"tasks": {"sampler": "all"}}, "tasks.sampler must be one of"),
        ({"tasks": {"ways": [5]}}, "tasks.ways must have 2 entries"),
        ({"tasks": {"ways": [5, 3]}}, "ways are 5 to 3"),
        ({"augmentation": {"grey_share": 2}}, "a share is 0 to 1"),
        ({"sources": [{"name": "a", "train": "x"}]}, "no source is validated on"),
        ({"sources": [{"name": "a", "validate": "x"}]}, "no source is trained on"),
        ({"sources": [{"name": "a"}]}, "neither to train, nor to validate, nor to test"),
        ({"sources": [{"name": "a", "train": "x", "validate": "x"}]}, "one split for two"),
        ({"sources": [{"train": "x"}]}, "lacks the key 'name'"),
    ],
)
def test_what_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        small_recipe(**change)


@pytest.mark.parametrize("name", ["mnist", "CIFAR-10", "cifar100", "gtsrb"])
def test_held_out_sources_are_not_trained_on(name: str) -> None:
    sources = [{"name": name, "train": "train", "validate": "test"}]
    with pytest.raises(BadInputError, match="held out"):
        small_recipe(sources=sources)
    small_recipe(sources=sources, held_out=[])
    small_recipe(sources=[*RECIPE["sources"], {"name": name, "validate": "test"}])


def test_a_file_that_is_not_there_or_not_toml(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"no recipe .*none\.toml"):
        read_recipe(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(BadInputError, match=r"bad\.toml: not TOML"):
        read_recipe(tmp_path / "bad.toml")
    with pytest.raises(BadInputError, match="is a folder, pipe or device"):
        read_recipe(tmp_path)
    with pytest.raises(BadInputError, match="lacks the key 'sources'"):
        parse_recipe({}, "empty.toml", "empty")


def test_pretrain_recipes() -> None:
    recipe = parse_pretrain_recipe({"source": {"name": "a", "train": "train"}}, "p.toml", "p")
    assert [recipe.rate(epoch) for epoch in (0, 24, 25, 100)] == pytest.approx([0.1, 0.1, 0.01, 1e-5])
    assert (recipe.epochs, recipe.batch_size, recipe.momentum, recipe.weight_decay) == (125, 256, 0.9, 1e-4)
    with pytest.raises(BadInputError, match="unknown key 'bach_size'"):
        parse_pretrain_recipe({"source": {"name": "a", "train": "t"}, "bach_size": 2}, "p.toml", "p")
    with pytest.raises(BadInputError, match="split to train on"):
        parse_pretrain_recipe({"source": {"name": "a", "validate": "t"}}, "p.toml", "p")
