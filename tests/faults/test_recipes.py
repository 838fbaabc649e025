"""Recipes that are damaged, hostile or absurd: one line that names the key, before any work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.damage import hunt
from training.small import small_recipe, small_training

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.sweeps.recipe import read_sweep_recipe
from cl_cnaps.training.metatrain import Ending
from cl_cnaps.training.pretrain_data import read_pretrain_recipe
from cl_cnaps.training.recipe import read_recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TRAINING = """
name = "small"
seed = 0
[[sources]]
name = "mnist"
train = "train"
validate = "test"
[training]
tasks = 10
learning_rate = 0.001
[validation]
every = 5
"""
HELD_OUT = "held_out = []\n"
PRETRAINING = 'name = "small"\nseed = 0\n[source]\nname = "mnist"\ntrain = "train"\n'
SWEEP = 'verb = "stream"\n[paper]\nlabels = ["tab:x"]\n[options]\nseed = 0\n[smoke.options]\nruns = 1\n'


def recipe_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    return file


def test_the_recipes_that_are_changed_below_are_good(tmp_path: Path) -> None:
    assert read_recipe(recipe_file(tmp_path, HELD_OUT + TRAINING)).training.tasks == 10
    assert read_pretrain_recipe(recipe_file(tmp_path, PRETRAINING)).name == "small"
    assert len(read_sweep_recipe(recipe_file(tmp_path, SWEEP)).runs()) == 1


NAMES = [
    "../../../OUTSIDE",
    "/tmp/OUTSIDE",
    "..",
    "a/../../b",
    "C:\\\\x",
    "a\\\\b",
    "a\\u0000b",
    "",
    " ",
    ".",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    for read, text in ((read_recipe, HELD_OUT + TRAINING), (read_pretrain_recipe, PRETRAINING)):
        with pytest.raises(BadInputError, match=r"cannot be the name of a file|is an empty text"):
            read(recipe_file(tmp_path, text.replace('name = "small"', f'name = "{name}"')))


VALUES = {
    "infinite": ("learning_rate = 0.001", "learning_rate = inf", "learning_rate is inf"),
    "not a number": ("learning_rate = 0.001", "learning_rate = nan", "learning_rate is nan"),
    "negative seed": ("seed = 0", "seed = -1", "seed is -1"),
    "huge seed": ("seed = 0", f"seed = {10**30}", "seed is a whole number of more than 64 bits"),
    "6,000 digits": ("seed = 0", f"seed = {'9' * 6000}", "not TOML"),
    "6,000 hexadecimal digits": ("seed = 0", f"seed = 0x{'f' * 6000}", "of more than 64 bits"),
    "text for a number": ("seed = 0", 'seed = "0"', "seed must be a whole number"),
    "table for a number": ("seed = 0", "seed = {}", "seed must be a whole number"),
    "list for a number": ("tasks = 10", "tasks = [[10]]", "tasks must be a whole number"),
    "empty text": ('train = "train"', 'train = ""', r"train is an empty text"),
    "deep nesting": ("seed = 0", f"seed = {'[' * 100}{']' * 100}", "more than 16 deep"),
    "deeper nesting": ("seed = 0", f"seed = {'[' * 100_000}{']' * 100_000}", "not TOML"),
    "a table twice": ("[training]", "[training]\ntasks = 1\n[training]", "not TOML"),
}


@pytest.mark.parametrize(("old", "new", "message"), VALUES.values(), ids=VALUES)
def test_values_that_no_setting_can_have(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TRAINING
    with pytest.raises(BadInputError, match=message) as caught:
        read_recipe(recipe_file(tmp_path, HELD_OUT + TRAINING.replace(old, new)))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_learning_rate_beyond_reason_ends_as_documented(tmp_path: Path) -> None:
    recipe = small_recipe(training={"learning_rate": 1e30}, validation={"every": 4})
    assert small_training(recipe, tmp_path, name="transductive").run() == Ending.NOT_FINITE
    with pytest.raises(BadInputError, match=r"learning_rate is 1e\+300"):
        small_recipe(training={"learning_rate": 1e300})


def test_a_grid_of_a_billion_runs_is_refused_with_the_number(tmp_path: Path) -> None:
    axes = "".join(f"a{axis} = {list(range(1000))}\n" for axis in range(3))
    for table in ("grid", "smoke.grid"):
        with pytest.raises(BadInputError, match=rf"{table} multiplies out to 1,000,000,000 runs"):
            read_sweep_recipe(recipe_file(tmp_path, f"{SWEEP}[[{table}]]\n{axes}"))


def test_refinement_that_would_never_end_is_refused() -> None:
    with pytest.raises(BadInputError, match="refine_min is 999,999,999; at most 1,000"):
        CnapsConfig(model="transductive", refine_min=999_999_999, refine_max="unbounded")


@pytest.mark.timeout(20)
def test_pipes_devices_and_folders_are_no_recipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero"), tmp_path):
        with pytest.raises(ClCnapsError, match="not a file that can be read"):
            read_recipe(path)


RECIPES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "training": (HELD_OUT + TRAINING, read_recipe),
    "pretraining": (PRETRAINING, read_pretrain_recipe),
    "sweep": (SWEEP, read_sweep_recipe),
    **{
        path.stem: (path.read_text(), read_recipe)
        for path in sorted(BENCHMARKS.glob("training/*range*.toml"))
    },
}


@pytest.mark.parametrize(("text", "read"), RECIPES.values(), ids=RECIPES)
def test_damaged_recipes_are_read_or_refused(
    tmp_path: Path, text: str, read: Callable[[Path], object]
) -> None:
    file = tmp_path / "recipe.toml"

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            read(file)
        except ClCnapsError as error:
            assert str(error) and "\n" not in str(error)

    hunt("recipe", text.encode(), check)
