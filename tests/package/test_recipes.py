"""Recipes by name, and recipes that are built on others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cl_cnaps import recipes
from cl_cnaps.commands.main import main
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.recipes import find_recipe, read_toml

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "benchmarks" / "training"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_a_name_is_a_path_below_benchmarks() -> None:
    every = recipes.recipes()
    assert {"continual", "active/cifar10", "training/small"} <= set(every)
    for name, path in every.items():
        assert path == ROOT / "benchmarks" / f"{name}.toml"
        assert find_recipe(name) == find_recipe(name.rpartition("/")[2]) == path, "the last part is enough"


def test_a_path_works_outside_a_checkout_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("benchmarks/training/small.toml") == TRAINING / "small.toml"
    (tmp_path / "small").mkdir()
    assert find_recipe("small") == TRAINING / "small.toml", "a folder is no recipe"
    (tmp_path / "small.toml").write_text("seed = 3")
    assert find_recipe("small.toml") == Path("small.toml"), "a file comes first"


def test_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingDataError, match="recipes list"):
        find_recipe("no-such")
    both = {"a/same": Path("a/same.toml"), "b/same": Path("b/same.toml")}
    monkeypatch.setattr(recipes, "recipes", lambda: both)
    with pytest.raises(BadInputError, match="several recipes 'same': a/same, b/same"):
        find_recipe("same")


def test_a_base_may_be_a_recipe_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('base = "small"\n[training]\ntasks = 3')
    content = read_toml(tmp_path / "mine.toml")
    assert content["training"] == {**read_toml(TRAINING / "small.toml")["training"], "tasks": 3}


def test_a_base_is_merged_table_by_table(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('x = 1\n[t]\nkept = 1\nchanged = 1\n[[s]]\nn = "1"\n[[s]]\nn = "2"')
    (tmp_path / "b.toml").write_text('base = "a.toml"\n[t]\nchanged = 2\nnew = 3')
    (tmp_path / "c.toml").write_text('base = "b.toml"\nx = 5\n[[s]]\nn = "3"')
    assert read_toml(tmp_path / "c.toml") == {
        "x": 5,
        "t": {"kept": 1, "changed": 2, "new": 3},
        "s": [{"n": "3"}],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "r.toml"', "more than 8 recipes"),
        ("base = 3", "must be the name of a file"),
        ('base = "../other.toml"', "cannot be the name"),
        ('base = "none.toml"', "no recipe .*none.toml"),
    ],
)
def test_bad_bases(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises((BadInputError, MissingDataError), match=message):
        read_toml(tmp_path / "r.toml")


def test_list_and_show() -> None:
    listed = run("recipes", "list")
    assert listed.exit_code == 0, listed.output
    assert len(listed.stdout.splitlines()) == len(recipes.recipes()) + 2
    lines = [json.loads(line) for line in run("recipes", "list", "--json").stdout.splitlines()]
    assert {line["name"] for line in lines} == set(recipes.recipes())
    commands = {line["name"]: line["command"] for line in lines}
    assert commands["training/small"] == "metatrain small"
    assert commands["continual"] == "sweep continual"
    assert commands["training/pretrain-resnet18-imagenet"] == "pretrain pretrain-resnet18-imagenet"
    assert all(line["title"] for line in lines)
    shown = run("recipes", "show", "cnaps-efficientnet-lite0")
    assert shown.stdout.startswith("# The shipped weights of the original CNAPS")
    resolved = json.loads(run("recipes", "show", "cnaps-efficientnet-lite0", "--json").stdout)
    assert len(resolved["sources"]) == 7
    assert resolved["model"]["model"] == "cnaps"


@pytest.mark.slow
def test_the_build_puts_recipes_into_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    built = tmp_path / "lib" / "cl_cnaps" / "benchmarks"
    names = {path.relative_to(built).with_suffix("").as_posix() for path in built.rglob("*.toml")}
    assert names == set(recipes.recipes())
