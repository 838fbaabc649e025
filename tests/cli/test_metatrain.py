"""`metatrain` and `pretrain` as a person starts, kills and resumes them, on a small network and folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from PIL import Image

from cl_cnaps.commands.main import main
from cl_cnaps.commands.train import _not_adapting, metatrain, pretrain
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.loading import load_model
from cl_cnaps.models.tensor_files import read_metadata, read_tensors
from cl_cnaps.models.weights import describe
from cl_cnaps.training.ranks import Interruption

RECIPE = """
backbone_weights = "random"

[model]
model = "simple"
backbone = "timm:test_resnet"
image_size = 32
encoder = {{ norm = "batch", image_size = 32 }}

[tasks]
ways = [2, 3]
shots = [1, 2]
queries = 2

[[sources]]
name = "folder:{images}"
classes = "fractions"
train = "TRAIN"
validate = "VALID"
fractions = [0.5, 0.5, 0.0]

[augmentation]
low_resolution = 16
low_resolution_share = 0.5

[training]
tasks = {tasks}
tasks_per_step = 2
learning_rate = 1e-3
checkpoint_every = 2

[validation]
every = 16
tasks = 2
patience = 0
"""

PRETRAIN = """
backbone = "timm:test_resnet"
image_size = 32
epochs = 2
batch_size = 8
learning_rate = 0.05
drop_every = 1
validation_share = 0.25
checkpoint_every = 1

[source]
name = "folder:{images}"
train = "all"
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight classes of eight images."""
    root = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    for k in range(8):
        (root / f"class{k}").mkdir()
        colour = rng.integers(0, 150, 3)
        for i in range(8):
            pixels = (colour + rng.integers(0, 100, (32, 32, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(root / f"class{k}" / f"{i}.png")
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))


def recipe(folder: Path, images: Path, text: str = RECIPE, tasks: int = 40) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text.format(images=images, tasks=tasks))
    return path


def run(command: click.Command, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def started(*arguments: object) -> subprocess.Popen[str]:
    """`metatrain` in a process of its own, with as many threads as this one."""
    script = "from cl_cnaps.commands.train import metatrain; metatrain()"
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(checkpoint: Path, tasks: int, process: subprocess.Popen[str]) -> None:
    """Until the checkpoint says that so many tasks are done."""
    for _ in range(3000):
        assert process.poll() is None, process.communicate()
        if checkpoint.is_file() and json.loads(read_metadata(checkpoint)["progress"])["tasks"] >= tasks:
            return
        time.sleep(0.01)
    raise AssertionError(f"{checkpoint} was not written in time")


def same_tensors(one: Path, other: Path) -> None:
    tensors, others = read_tensors(one), read_tensors(other)
    assert set(tensors) == set(others)
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name


def test_kill_and_resume_equals_a_straight_run(tmp_path: Path, images: Path) -> None:
    """2N tasks straight; and N, kill -9, N more: bit for bit the same weights, optimiser, episodes and export."""
    toml = recipe(tmp_path, images)
    straight = run(metatrain, toml, "--out", tmp_path / "straight", "--device", "cpu", "--json")
    assert straight.exit_code == 0, straight.output
    killed = tmp_path / "killed" / "metatrain" / "tiny"
    process = started(toml, "--out", tmp_path / "killed", "--device", "cpu")
    wait_for(killed / "checkpoint.safetensors", 10, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done = json.loads(read_metadata(killed / "checkpoint.safetensors")["progress"])["tasks"]
    assert 10 <= done < 40, "it was killed in the middle"
    refused = run(metatrain, toml, "--out", tmp_path / "killed", "--device", "cpu")
    assert isinstance(refused.exception, ClCnapsError)
    resumed = run(metatrain, toml, "--out", tmp_path / "killed", "--device", "cpu", "--resume", "--json")
    assert resumed.exit_code == 0, resumed.output
    whole = tmp_path / "straight" / "metatrain" / "tiny"
    for name in ("checkpoint.safetensors", "best.safetensors", "weights.safetensors"):
        same_tensors(whole / name, killed / name)
    one, other = (
        json.loads(read_metadata(f / "checkpoint.safetensors")["progress"]) for f in (whole, killed)
    )
    assert one["episodes"] == other["episodes"]
    assert {**one, "seconds": 0} == {**other, "seconds": 0}
    said, said_too = (json.loads(result.stdout) for result in (straight, resumed))
    assert said["tasks"] == said_too["tasks"] == 40
    assert said["best"] == said_too["best"]

    # What comes out is used like any weights, and says how it was made.
    weights = whole / "weights.safetensors"
    about = describe(weights).training
    assert about["recipe"]["training"]["tasks_per_step"] == 2
    assert about["data"][f"folder:{images}"]["digest"]
    assert about["tasks_in_all"] == 40
    assert "commit" in about["code"]
    assert read_tensors(weights)["adaptation.trunk.0.weight"].dtype == torch.float16
    assert load_model("simple", weights=weights).model.config.backbone == "timm:test_resnet"


def test_a_signal_saves_and_says_so(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signals themselves are tested with the training; here, what the command makes of them."""
    monkeypatch.setattr(Interruption, "__call__", lambda self: True)
    toml = recipe(tmp_path, images)
    result = run(main, "metatrain", toml, "--out", tmp_path, "--device", "cpu")
    assert result.exit_code == 130, result.output
    assert "interrupted and saved (0 tasks" in result.stdout
    line = f"interrupted; to continue: cl-cnaps metatrain {toml} --out {tmp_path} --device cpu --resume"
    assert result.stderr.splitlines()[-1] == line
    folder = tmp_path / "metatrain" / "tiny"
    assert (folder / "checkpoint.safetensors").is_file()
    assert not (folder / "weights.safetensors").exists()


def test_what_a_person_sees(tmp_path: Path, images: Path) -> None:
    toml = recipe(tmp_path, images)
    result = run(metatrain, toml, "--out", tmp_path, "--tasks", 4, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert ": 64 images" in result.stderr
    assert "after 0 tasks: validation" in result.stderr
    assert "4 of 4 tasks: loss" in result.stderr
    assert "tasks/s" in result.stderr
    assert "left" in result.stderr
    assert "finished (4 tasks" in result.stdout
    assert "weights.safetensors" in result.stdout.splitlines()[-2]

    start = tmp_path / "metatrain" / "tiny" / "weights.safetensors"
    text = (
        toml.read_text()
        .replace('model = "simple"', 'model = "transductive"')
        .replace('backbone_weights = "random"', f'start = "{start}"')
    )
    warm = tmp_path / "warm.toml"
    warm.write_text(text)
    result = run(metatrain, warm, "--out", tmp_path, "--tasks", 2, "--device", "cpu", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.output == ""
    about = describe(tmp_path / "metatrain" / "warm" / "weights.safetensors").training["start"]
    assert about["digest"] == describe(start).digest
    assert about["new"]
    assert all("lstm" in name for name in about["new"])


def test_the_test_at_the_end(tmp_path: Path, images: Path) -> None:
    text = RECIPE.replace("fractions = [0.5, 0.5, 0.0]", 'test = "TEST"\nfractions = [0.4, 0.3, 0.3]')
    toml = recipe(tmp_path, images, "test_tasks = 3\n" + text)
    result = run(metatrain, toml, "--out", tmp_path, "--tasks", 4, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "classes of VALID" in result.stdout
    assert "classes of TEST" in result.stdout
    assert "all tasks are of one source" in result.stdout
    folder = tmp_path / "metatrain" / "tiny"
    assert (folder / "curves.png").stat().st_size > 5000
    assert result.stdout.splitlines()[-1] == f"figure:   {folder / 'curves.png'}"
    tested = describe(folder / "weights.safetensors").training["test"]
    assert set(tested) == {"own", "static", "swapped", "frozen"}
    last = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["own"]) == ("test", tested["own"])
    again = run(metatrain, toml, "--out", tmp_path, "--tasks", 4, "--device", "cpu", "--resume", "--json")
    assert json.loads(again.stdout)["test"] == tested, "a finished training is only tested again"


def test_the_note_of_a_training_that_does_not_adapt() -> None:
    assert "the adaptation does not adapt" in _not_adapting(sources=2)
    assert "one source" in _not_adapting(sources=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_without_a_recipe_or_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole command of a newcomer: better than frozen features on scripts and digits that it never saw."""
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    result = run(metatrain, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("no recipe was given: training/small")
    assert "cl-cnaps metatrain simple-efficientnet-lite0" in result.stdout
    tested = describe(Path("runs/metatrain/small/weights.safetensors")).training["test"]
    assert set(tested["own"]) == {"glyphs", "mnist"}
    for source, own in tested["own"].items():
        assert own > tested["frozen"][source] + 0.01
    assert Path("runs/metatrain/small/curves.png").is_file()


def test_settings_of_the_model_instead_of_the_recipes(tmp_path: Path, images: Path) -> None:
    text = RECIPE.replace('model = "simple"\n', "")
    asked = (recipe(tmp_path, images, text), "--out", tmp_path, "--tasks", 2, "--device", "cpu", "--quiet")
    for options, name, settings in (
        (("--metric", "cosine"), "tiny-cosine", {"model": "simple", "metric": "cosine"}),
        (
            ("--variant", "plus", "--refine-min", 0, "--refine-max", 1),
            "tiny-plus-refine-0-1",
            {"model": "transductive", "variant": "plus", "refine_min": 0, "refine_max": 1},
        ),
    ):
        result = run(metatrain, *asked, *options)
        assert result.exit_code == 0, result.output
        folder = tmp_path / "metatrain" / name
        written = json.loads((folder / "recipe.json").read_text())
        made = describe(folder / "weights.safetensors")
        assert written["name"] == name
        for there in (written["model"], made.config.as_json(), made.training["recipe"]["model"]):
            assert there.items() >= settings.items()
    refused = run(metatrain, *asked, "--refine-max", 1)
    assert "for models that refine, not for simple" in str(refused.exception)


def test_a_random_backbone_must_be_asked_for(tmp_path: Path, images: Path) -> None:
    text = RECIPE.replace('backbone_weights = "random"', "").replace("timm:test_resnet", "resnet18")
    result = run(metatrain, recipe(tmp_path, images, text), "--out", tmp_path, "--device", "cpu")
    assert isinstance(result.exception, ClCnapsError)
    assert "--backbone-weights" in str(result.exception)


def test_pretrain_interrupted_and_resumed(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml = recipe(tmp_path, images, PRETRAIN)
    straight = run(pretrain, toml, "--out", tmp_path / "straight", "--device", "cpu", "--json")
    assert straight.exit_code == 0, straight.output
    said = json.loads(straight.stdout)
    assert said["batches"] == 2 * 6, "48 of 64 images, in batches of 8, twice"
    assert 0 <= said["accuracy"] <= 1

    with monkeypatch.context() as patch:
        patch.setattr(Interruption, "__call__", lambda self: True)
        stopped = run(main, "pretrain", toml, "--out", tmp_path / "stopped", "--device", "cpu", "--json")
    assert stopped.exit_code == 130, stopped.output
    assert stopped.stderr.splitlines()[-1].endswith("--resume")
    resumed = run(pretrain, toml, "--out", tmp_path / "stopped", "--device", "cpu", "--resume")
    assert resumed.exit_code == 0, resumed.output
    whole, other = (tmp_path / name / "pretrain" / "tiny" for name in ("straight", "stopped"))
    for name in ("checkpoint.safetensors", "backbone.safetensors"):
        same_tensors(whole / name, other / name)

    # The file is what --backbone-weights takes.
    toml = recipe(tmp_path, images)
    file = whole / "backbone.safetensors"
    result = run(
        metatrain, toml, "--out", tmp_path, "--tasks", 2, "--device", "cpu", "--backbone-weights", file, "-q"
    )
    assert result.exit_code == 0, result.output
    made = describe(tmp_path / "metatrain" / "tiny" / "weights.safetensors")
    assert made.backbone_source == "backbone.safetensors"


def test_pretrain_is_not_for_torchrun(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = run(pretrain, recipe(tmp_path, images, PRETRAIN), "--out", tmp_path)
    assert result.exit_code == 2
    assert "one process" in result.output
