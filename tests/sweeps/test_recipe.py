"""Recipes of sweeps: read strictly, multiplied out, chosen from; options are those the verb's command has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cl_cnaps.commands.sweep_runs import from_root, planned_runs
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.sweeps.recipe import chosen, differing, parse_sweep_recipe, read_sweep_recipe, words

PAPER = {"labels": ["tab:continual-learning-results-table"], "data": "continual.toml"}
GOOD: dict[str, Any] = {
    "verb": "stream",
    "paper": PAPER,
    "options": {"runs": 2, "download": False},
    "grid": [
        {"model": ["simple", "protonet"], "encoding": ["first", "moving"]},
        {"model": "ewc", "baseline-on": ["network"]},
    ],
    "smoke": {"options": {"runs": 1}},
}


def plan(content: dict[str, Any], **choice: Any) -> list[tuple[str, tuple[str, ...]]]:
    recipe = parse_sweep_recipe(content, "r.toml", "r")
    runs = planned_runs(recipe, "r.toml", **choice)
    return [(run.words, run.arguments) for run in runs]


def test_grids_are_multiplied_out_in_order() -> None:
    assert plan(GOOD) == [
        (f"{model} {encoding}", ("--runs", "2", "--no-download", "--model", model, "--encoding", encoding))
        for model in ("simple", "protonet")
        for encoding in ("first", "moving")
    ] + [("ewc network", ("--runs", "2", "--no-download", "--model", "ewc", "--baseline-on", "network"))]


def test_smoke_replaces_options_one_by_one_and_grids_together() -> None:
    assert [arguments[:2] for _, arguments in plan(GOOD, smoke=True)] == [("--runs", "1")] * 5
    small = {**GOOD, "smoke": {"grid": {"model": "simple"}}}
    assert plan(small, smoke=True) == [("r", ("--runs", "2", "--no-download", "--model", "simple"))]


def test_runs_are_chosen_then_changed() -> None:
    assert [said for said, _ in plan(GOOD, only=[("model", "simple"), ("model", "ewc")])] == [
        "simple first",
        "simple moving",
        "ewc network",
    ]
    changed = plan(GOOD, only=[("model", "simple")], changes=[("model", "cnaps"), ("weights", "mine")])
    assert [arguments[3:] for _, arguments in changed] == [
        ("--model", "cnaps", "--encoding", encoding, "--weights", "mine") for encoding in ("first", "moving")
    ]
    (one,) = plan(GOOD, only=[("model", "ewc")], changes=[("download", "true")])
    assert "--download" in one[1]
    runs = parse_sweep_recipe(GOOD, "r.toml", "r").runs()
    for only, says in (
        ([("model", "ewk")], "no run of the recipe has model = ewk: there are ewc, protonet, simple"),
        ([("modle", "ewc")], "no run has that option"),
        ([("model", "ewc"), ("encoding", "first")], "exclude each other"),
    ):
        with pytest.raises(BadInputError, match=says):
            chosen(runs, only)


def test_an_option_is_set_as_often_as_the_verb_takes_it() -> None:
    ablation = {
        **GOOD,
        "verb": "ablate",
        "options": {"weights": "simple=old"},
        "grid": {"which": "transduction"},
    }
    (one,) = plan(ablation, changes=[("weights", "plus=a"), ("tasks", "3"), ("weights", "feot=b")])
    assert one[1] == ("transduction", "--weights", "plus=a", "--weights", "feot=b", "--tasks", "3")
    for name, says in (
        ("encoding", "encoding is set 2 times, to one and two; `cl-cnaps stream` takes one"),
        ("modle", "modle is set 2 times"),
    ):
        with pytest.raises(BadInputError, match=says):
            plan(GOOD, changes=[(name, "one"), ("runs", "3"), (name, "two")])


def test_words_tell_runs_apart() -> None:
    runs = [{"model": "simple", "seed": seed, "variable": True} for seed in (0, 1)]
    assert differing(runs) == ["seed"]
    assert words(runs[1], differing(runs)) == "seed 1"


def test_true_and_false_are_chosen_as_a_recipe_writes_them() -> None:
    content = {**GOOD, "verb": "active", "options": {}, "grid": {"paper": [True, False]}}
    assert [said for said, _ in plan(content)] == ["paper true", "paper false"]
    assert plan(content, only=[("paper", "true")]) == [("r", ("--paper",))]
    assert plan(content, only=[("paper", "false")]) == [("r", ())]
    with pytest.raises(BadInputError, match="no run of the recipe has paper = yes: there are false, true"):
        plan(content, only=[("paper", "yes")])


def test_paths_of_runs_elsewhere_are_given_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("photos", "specs", "a,b"):
        (tmp_path / folder).mkdir()
    for file in ("mine.safetensors", "backbone.pt", "specs/w.safetensors", "order.txt", "x.npz"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    given = {
        "target": "folder:photos",
        "source": "folder:a,b",
        "benchmark": "records:/there/already",
        "class-order": "order.txt",
        "lists": "specs",
        "sources": "dtd,folder:photos,records:specs",
        "specs": "specs",
        "weights": ("mine.safetensors", "plus=specs/w.safetensors", "feot=simple-resnet18", "photos", "none"),
        "backbone-weights": "backbone.pt",
        "model": "photos",
        "tasks": 3,
        "variable": True,
    }
    root = tmp_path.as_posix()
    assert from_root(given) == {
        **given,
        "target": f"folder:{root}/photos",
        "source": f"folder:{root}/a,b",
        "sources": f"dtd,folder:{root}/photos,records:{root}/specs",
        "specs": f"{root}/specs",
        "class-order": f"{root}/order.txt",
        "lists": f"{root}/specs",
        "weights": (
            f"{root}/mine.safetensors",
            f"plus={root}/specs/w.safetensors",
            "feot=simple-resnet18",
            "photos",
            "none",
        ),
        "backbone-weights": f"{root}/backbone.pt",
    }
    for value, absolute in (
        ("features:x.npz", f"features:{root}/x.npz"),
        ("mixed:mnist,folder:photos", f"mixed:mnist,folder:{root}/photos"),
        ("domains:features:x.npz,dtd", f"domains:features:{root}/x.npz,dtd"),
    ):
        assert from_root({"benchmark": value}) == {"benchmark": absolute}
    assert from_root({"class-order": "ant,owl"}) == {"class-order": "ant,owl"}
    for name, value in (
        ("benchmark", "folder:nowhere"),
        ("weights", "nowhere/w.safetensors"),
        ("weights", "plus=nowhere.safetensors"),
        ("backbone-weights", "nowhere"),
    ):
        with pytest.raises(BadInputError, match=r"there is no nowhere\S* in this folder.*from the root"):
            from_root({name: value})
    (run,) = plan({**GOOD, "grid": {"weights": "mine.safetensors"}}, elsewhere=True)
    assert run[1][-2:] == ("--weights", f"{root}/mine.safetensors")
    (run,) = plan({**GOOD, "grid": {"weights": "mine.safetensors"}})
    assert run[1][-2:] == ("--weights", "mine.safetensors")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"grids": []}, "unknown key 'grids'; known are verb, paper, options, grid, smoke"),
        ({"verb": "straem"}, "verb must be one of stream, evaluate, active, ablate"),
        ({"verb": 3}, "verb must be text"),
        ({"options": {"rnus": 2}}, "has no option 'rnus'; did you mean runs"),
        ({"options": {"image_size": 16}}, "has no option 'image_size'; did you mean image-size"),
        ({"options": {"runs": "few"}}, "'few' is not a valid integer"),
        ({"options": {"runs": 0}}, "0 is not in the range"),
        ({"options": {"head": "both"}}, "'both' is not one of"),
        ({"options": {"runs": True}}, "runs takes a value, not true or false"),
        ({"options": {"download": "maybe"}}, "download is true or false"),
        ({"options": {"out": "x"}}, "out is an option of the command that runs the recipe"),
        ({"options": {"workers": 2}}, "workers is an option of the command that runs the recipe"),
        ({"options": {"model": ["simple"]}}, "belongs in \\[\\[grid\\]\\]"),
        ({"options": {"model": {}}}, "options.model must be text, a number"),
        ({"options": []}, "options must be a table"),
        ({"grid": {"model": []}}, "grid.model is an empty list"),
        ({"grid": [{"model": "simple"}, {"model": [{}]}]}, "grid\\[1\\].model must be text"),
        ({"grid": {"target": "mnist"}}, "has no option 'target'"),
        ({"smoke": {}}, "every recipe can be tried out"),
        ({"smoke": {"runs": 1}}, "smoke has an unknown key 'runs'"),
        ({"paper": {}}, "paper.labels must be a list"),
        ({"paper": {**PAPER, "data": "none.toml"}}, "there is no 'none.toml'"),
        ({"paper": {**PAPER, "data": "few_shot.py"}}, "there is no 'few_shot.py'"),
        ({"paper": {**PAPER, "url": "x"}}, "paper has an unknown key 'url'"),
        ({"paper": {**PAPER, "trained-on": "mnist"}}, "trained-on must be benchmark or imagenet"),
    ],
)
def test_what_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        plan({**GOOD, **change})


def test_an_argument_of_the_verb_is_an_option_of_the_recipe() -> None:
    content = {
        **GOOD,
        "verb": "evaluate",
        "options": {"tasks": 3, "target": "mnist", "variable": True},
        "grid": {},
    }
    assert plan(content) == [("r", ("mnist", "--tasks", "3", "--variable"))]
    with pytest.raises(BadInputError, match=r"Missing argument '?.*adaptation"):
        plan({**content, "verb": "ablate", "options": {"tasks": 3}})


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no recipe"):
        read_sweep_recipe(tmp_path / "none.toml")
    training = Path(__file__).parents[2] / "benchmarks" / "training" / "small.toml"
    with pytest.raises(BadInputError, match=r"has no `verb`.*cl-cnaps metatrain"):
        read_sweep_recipe(training)
