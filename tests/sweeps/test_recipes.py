"""The project's own recipes: every one can be read, has no unknown key, and its smoke part runs."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from cl_cnaps.commands.sweep_runs import SWEEPS_OWN, do, planned_runs
from cl_cnaps.records.record import read_record
from cl_cnaps.report.view import view_of
from cl_cnaps.sweeps.engines import Task
from cl_cnaps.sweeps.recipe import parse_sweep_recipe, read_sweep_recipe
from cl_cnaps.training.pretrain_data import read_pretrain_recipe
from cl_cnaps.training.recipe import read_recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
EVERY = sorted(BENCHMARKS.rglob("*.toml"))
SWEEPS = [path for path in EVERY if path.parent.name != "training"]


def short(path: Path) -> str:
    return path.relative_to(BENCHMARKS).with_suffix("").as_posix()


@pytest.mark.parametrize("path", EVERY, ids=short)
def test_every_recipe_can_be_read(path: Path) -> None:
    if path in SWEEPS:
        recipe = read_sweep_recipe(path)
        assert planned_runs(recipe, path.name)
    elif path.stem.startswith("pretrain"):
        read_pretrain_recipe(path)
    else:
        read_recipe(path)


@pytest.mark.parametrize("path", SWEEPS, ids=short)
def test_the_head_has_command_cost_and_figures(path: Path) -> None:
    head = path.read_text().split("\nverb = ", 1)[0]
    assert all(line.startswith("#") or not line for line in head.splitlines())
    assert f"cl-cnaps sweep benchmarks/{short(path)}.toml" in head
    assert re.search(r"\d+ runs?\b|same runs", head), "the cost is not said"
    page = BENCHMARKS.parent / "docs" / "reproducing.md"
    assert f"| `benchmarks/{short(path)}.toml` |" in page.read_text(), "docs/reproducing.md does not name it"
    recipe = read_sweep_recipe(path)
    if not recipe.paper.labels:
        assert re.search(r"Not in\s+(# )?the paper\.", head)
        return
    if recipe.paper.data is None:
        assert "without printing numbers" in head
        return
    held = resources.files("cl_cnaps.report.paper").joinpath(recipe.paper.data).read_text()
    assert recipe.paper.data in head or "without printing numbers" in head
    known = [label for label in recipe.paper.labels if label.removesuffix("-1").removesuffix("-2") in held]
    assert known or "without printing numbers" in head


def test_the_page_counts_the_runs() -> None:
    page = (BENCHMARKS.parent / "docs" / "reproducing.md").read_text()
    said = dict(re.findall(r"\| `benchmarks/(\S+)\.toml` \| (\d+) \|", page))
    assert said == {short(path): str(len(read_sweep_recipe(path).runs())) for path in SWEEPS}
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    recipe = parse_sweep_recipe(tomllib.loads(shown), "page", "page")
    assert len(planned_runs(recipe, "page")) == 13
    assert len(planned_runs(recipe, "page", smoke=True)) == 1


def test_the_page_names_forbidden_options() -> None:
    page = (BENCHMARKS.parent / "docs" / "reproducing.md").read_text()
    (said,) = re.findall(r"What the sweep\s+decides itself \((.*?)\)", page, re.DOTALL)
    assert tuple(re.findall(r"`(\S+)`", said)) == SWEEPS_OWN


@pytest.mark.slow
def test_smoke_parts_run_offline_from_a_fresh_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in this process: importing PyTorch for each would take longer than the runs."""
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))
    for path in SWEEPS:
        recipe = read_sweep_recipe(path)
        out = tmp_path / path.stem
        places = set()
        for run in planned_runs(recipe, path.name, smoke=True):
            reply = do(Task(run.verb, run.arguments, 1, str(out), frozenset()))
            assert reply.status == "made", (path, run.words)
            places.add(reply.record)
            for record in (reply.record, *(other for other, _ in reply.others)):
                for headline in view_of(read_record(out / record)).headlines(recipe.paper.trained_on):
                    assert 0 <= headline.mean <= 1
        assert len(places) == len(planned_runs(recipe, path.name, smoke=True)), "two runs are the same"


def test_a_run_of_several_models_makes_a_record_of_each_and_finds_those_that_are_there(
    tmp_path: Path,
) -> None:
    small = ("--backbone", "resnet18", "--backbone-weights", "random", "--image-size", "16", "--shots", "2")
    small += ("--queries", "2", "--runs", "1", "--head", "single")
    one = do(Task("stream", (*small, "--model", "ncm"), 1, str(tmp_path), frozenset()))
    arguments = (*small, "--model", "simple,ncm")
    looked = do(Task("stream", arguments, 1, str(tmp_path), frozenset({one.record}), look_only=True))
    assert looked.status == "absent"
    sent = do(Task("stream", arguments, 1, None, frozenset({one.record})))
    assert sent.status == "made"
    assert sent.files is not None
    assert sent.others == ((one.record, None),)  # was there, and is not sent
    both = do(Task("stream", arguments, 1, str(tmp_path), frozenset({one.record})))
    assert (both.record, both.others) == (sent.record, sent.others)
    have = frozenset({both.record, one.record})
    assert do(Task("stream", arguments, 1, str(tmp_path), have)).status == "found"
