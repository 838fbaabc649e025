"""A training from beginning to end: what is learned, kept, resumed and stopped."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training.small import Silence, small_recipe, small_training

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.models.tensor_files import read_metadata, read_tensors
from cl_cnaps.training import step, validation
from cl_cnaps.training.metatrain import Ending
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.step import TaskScore, add_gradient, learning_rate


def state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    path = folder / "checkpoint.safetensors"
    return read_tensors(path), json.loads(read_metadata(path)["progress"])


def same_state(one: Path, other: Path) -> None:
    (tensors, progress), (others, other_progress) = state(one), state(other)
    assert set(tensors) == set(others)
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name
    progress.pop("seconds"), other_progress.pop("seconds")
    assert progress == other_progress


def test_what_a_training_leaves_behind(tmp_path: Path) -> None:
    training = small_training(small_recipe(), tmp_path)
    assert training.run() is Ending.FINISHED
    watch = training.watch
    assert isinstance(watch, Silence)
    assert [tasks for tasks, _ in watch.validations] == [0, 8, 12]
    assert watch.steps == 3
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"recipe.json", "checkpoint.safetensors", "best.safetensors", "log.jsonl", "tensorboard"}
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["tasks"]) for line in lines] == [
        ("validation", 0), ("step", 4), ("step", 8), ("validation", 8), ("step", 12), ("validation", 12),
    ]  # fmt: skip
    assert {"loss", "accuracy", "learning_rate", "temperature", "tasks_per_second"} <= set(lines[1])
    best = max(watch.validations, key=lambda pair: pair[1])
    says = json.loads(read_metadata(tmp_path / "best.safetensors")["training"])
    assert says["tasks"] == best[0]
    assert says["data"]["red"]["digest"] == "colours red"
    assert says["recipe"]["training"]["tasks"] == 12
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_the_adaptation_is_what_is_learned(tmp_path: Path) -> None:
    training = small_training(small_recipe(), tmp_path)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    training.run()
    for name, tensor in training.model.state_dict().items():
        learned = not name.startswith("backbone.")
        assert torch.equal(tensor, before[name]) != learned, name


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    recipe = small_recipe(
        training={"tasks": 80, "checkpoint_every": 1000, "learning_rate": 0.05},
        validation={"every": 1000, "tasks": 1, "patience": 0},
        tasks={"ways": [4, 4], "shots": [1, 1]},
    )
    assert small_training(recipe, tmp_path).run() is Ending.FINISHED
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


@pytest.mark.parametrize(("name", "at"), [("simple", 4), ("transductive", 8)])
def test_resume_equals_a_straight_run(
    tmp_path: Path, name: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe()
    small_training(recipe, tmp_path / "straight", name=name).run()

    class Died(BaseException):
        """As if killed: nothing is caught, nothing more is written."""

    training = small_training(recipe, tmp_path / "killed", name=name)
    plain = step.add_gradient

    def die(*arguments: Any) -> TaskScore:
        if training.progress.tasks == at:
            raise Died
        return plain(*arguments)

    monkeypatch.setattr(step, "add_gradient", die)
    with pytest.raises(Died):
        training.run()
    monkeypatch.setattr(step, "add_gradient", plain)
    assert state(tmp_path / "killed")[1]["tasks"] == at
    small_training(recipe, tmp_path / "killed", name=name, resume=True).run()
    same_state(tmp_path / "straight", tmp_path / "killed")
    logs = [
        [
            {key: value for key, value in json.loads(line).items() if key != "tasks_per_second"}
            for line in (tmp_path / folder / "log.jsonl").read_text().splitlines()
        ]
        for folder in ("straight", "killed")
    ]
    assert logs[0] == logs[1]


def test_more_tasks_than_before(tmp_path: Path) -> None:
    small_training(small_recipe(), tmp_path / "longer").run()
    longer = small_recipe(training={"tasks": 20})
    small_training(longer, tmp_path / "longer", resume=True).run()
    # Validations fall at other places, so only the numbers that training moves are compared.
    small_training(longer, tmp_path / "straight").run()
    (tensors, one), (others, other) = state(tmp_path / "longer"), state(tmp_path / "straight")
    assert all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    assert one["episodes"] == other["episodes"]


def test_what_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no checkpoint to resume from"):
        small_training(small_recipe(), tmp_path, resume=True)
    small_training(small_recipe(training={"tasks": 4}), tmp_path).run()
    with pytest.raises(BadInputError, match="holds a training already"):
        small_training(small_recipe(), tmp_path)
    with pytest.raises(BadInputError, match="differs in training"):
        small_training(small_recipe(training={"learning_rate": 0.5}), tmp_path, resume=True)
    with pytest.raises(BadInputError, match="differs in seed"):
        small_training(small_recipe(seed=3), tmp_path, resume=True)
    content = (tmp_path / "checkpoint.safetensors").read_bytes()
    (tmp_path / "checkpoint.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ClCnapsError, match="not a safetensors file"):
        small_training(small_recipe(), tmp_path, resume=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_the_run_goes_on_later(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_recipe(training={"checkpoint_every": 1000}, validation={"every": 1000})
    small_training(recipe, tmp_path / "straight").run()
    plain, count = step.add_gradient, 0

    def signalled(*arguments: Any) -> TaskScore:
        nonlocal count
        count += 1
        if count == 6:  # in the middle of the second step
            os.kill(os.getpid(), number)
        return plain(*arguments)

    monkeypatch.setattr(step, "add_gradient", signalled)
    handler = signal.getsignal(number)
    assert small_training(recipe, tmp_path / "stopped").run() is Ending.INTERRUPTED
    assert signal.getsignal(number) is handler
    assert count == 6, "it stops at the next task"
    assert state(tmp_path / "stopped")[1]["tasks"] == 4
    assert small_training(recipe, tmp_path / "stopped", resume=True).run() is Ending.FINISHED
    same_state(tmp_path / "straight", tmp_path / "stopped")


def test_a_signal_during_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, count = validation.task_logits, 0

    def signalled(*arguments: Any) -> Tensor:
        nonlocal count
        count += 1
        if count == 17:  # the second validation: four columns of two tasks of two sources were the first
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(*arguments)

    monkeypatch.setattr(validation, "task_logits", signalled)
    assert small_training(small_recipe(), tmp_path / "stopped").run() is Ending.INTERRUPTED
    assert state(tmp_path / "stopped")[1]["validated"] == 0
    assert small_training(small_recipe(), tmp_path / "stopped", resume=True).run() is Ending.FINISHED
    small_training(small_recipe(), tmp_path / "straight").run()
    same_state(tmp_path / "straight", tmp_path / "stopped")


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_not_finite_stops_before_the_update(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_training(small_recipe(training={"tasks": 4}), tmp_path / "before").run()
    training = small_training(small_recipe(), tmp_path / "bad")
    seventh = training.data.training[6].batch.support_images

    def poisoned(model: Any, batch: Any, options: Optimisation) -> TaskScore:
        hit = batch.support_images.shape == seventh.shape and torch.equal(batch.support_images, seventh)
        if hit and where == "loss":
            monkeypatch.setattr(
                model, "embed", lambda images, film: film.gammas[0].new_full((len(images), 10), torch.nan)
            )
        score = add_gradient(model, batch, options)
        if hit:
            model.log_temperature.grad.fill_(torch.inf)
        return score

    monkeypatch.setattr(step, "add_gradient", poisoned)
    assert training.run() is Ending.NOT_FINITE
    said = json.loads((tmp_path / "bad" / "not_finite.json").read_text())
    episode = training.data.training.episode(6)
    assert (said["task"], said["source"], said["digest"]) == (6, episode.source, episode.digest())
    assert ("features contain NaN" if where == "loss" else "gradient") in said["reason"]
    assert said["support"] == episode.support.tolist()
    assert "task 6" in training.watch.said[-1]  # type: ignore[attr-defined]
    tensors, progress = state(tmp_path / "bad")
    assert progress["tasks"] == 4
    for name, tensor in state(tmp_path / "before")[0].items():
        assert torch.equal(tensor, tensors[name]), f"{name} moved"


def test_worse_than_frozen_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second validation on the model gives the wrong answer to everything."""
    plain, count = validation.task_logits, 0

    def wrong(*arguments: Any) -> Tensor:
        nonlocal count
        count += 1
        return plain(*arguments) * (1 if count <= 16 else -1)

    monkeypatch.setattr(validation, "task_logits", wrong)
    recipe = small_recipe(training={"tasks": 40}, validation={"every": 4, "patience": 2})
    training = small_training(recipe, tmp_path)
    assert training.run() is Ending.WORSE_THAN_FROZEN
    assert training.progress.tasks == 8
    assert training.progress.best is not None
    assert training.progress.best["tasks"] == 0
    assert training.progress.worse_in_a_row == 2


@pytest.mark.parametrize(("variant", "best"), [("plain", 0), ("plus", 8)])
def test_the_start_of_plus_is_never_its_best(
    variant: str, best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, count = validation.task_logits, 0

    def worse_and_worse(*arguments: Any) -> Tensor:
        nonlocal count
        count += 1
        return plain(*arguments) * (1 if count <= 16 else -1)

    monkeypatch.setattr(validation, "task_logits", worse_and_worse)
    model = {"model": "transductive", "variant": variant}
    training = small_training(small_recipe(model=model, validation={"every": 8, "patience": 0}), tmp_path)
    training.run()
    assert training.progress.best is not None
    assert training.progress.best["tasks"] == best


def test_learning_rate() -> None:
    constant = Optimisation(tasks=80, tasks_per_step=4, learning_rate=1.0, warm_up_steps=4)
    assert [learning_rate(constant, 4 * s) for s in (0, 1, 3, 9)] == pytest.approx([0.25, 0.5, 1, 1])
    cosine = Optimisation(tasks=80, tasks_per_step=4, learning_rate=1.0, schedule="cosine")
    assert [learning_rate(cosine, tasks) for tasks in (0, 40, 80)] == pytest.approx([1, 0.5, 0])


def test_gradient_clipping(tmp_path: Path) -> None:
    recipe = small_recipe(training={"clip_norm": 1e-3, "tasks": 4})
    training = small_training(recipe, tmp_path)
    training.run()
    parameters = [p for group in training.optimiser.param_groups for p in group["params"]]
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in parameters]))
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)
