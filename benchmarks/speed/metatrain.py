"""Meta-training: against a bare pass of the backbone, against a plain implementation, and on two processes.

- Time of a step of one task of 200 support and 200 query images at 84 pixels on ResNet-18, with its checks and Adam's
  update, in one piece (plain) and in parts (`images_at_once`), as a ratio to the backbone's forward and backward pass
  on the same images with the gradients that FiLM needs and no others; of it, what the features take; and the largest
  memory of a process that does nothing else.
- Tasks per second against a plain implementation: the same tasks of mini-ImageNet, image by image through torchvision
  from where they lie, FiLM as extra layers, dense covariances, PyTorch's default memory format, in a process with
  PyTorch as it comes.
- Two processes with a thread each, sharing the tasks of a step, against one process with one thread.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.machine import peak_bytes
from benchmarks.speed.modulated import FilmLayers
from benchmarks.speed.stock_process import StockProcess, serve
from benchmarks.speed.textbook import dense_covariances, dense_logits
from benchmarks.speed.timing import ratio, seconds, turns
from benchmarks.speed.transforms import transformed
from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, make_model
from cl_cnaps.models.film import Film
from cl_cnaps.torch_setup import set_up_torch
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.step import add_gradient, train_step
from cl_cnaps.training.tasks import Task

WAY, IMAGES, SIDE = 20, 200, 84
AT_ONCE = 32
TASKS_A_STEP, REPEATS = 4, 3


def measure(quick: bool) -> Iterator[Figure]:
    """All of it; quick leaves out memory and the second process."""
    images = 40 if quick else IMAGES
    rounds = 1 if quick else REPEATS
    yield from _to_a_bare_pass(images, rounds)
    yield _to_a_plain_implementation(rounds)
    if quick:
        return
    for form, bar in (("plain", None), ("parts", 2.0)):
        peak = _alone("memory", form)["peak_gigabytes"]
        yield Figure("metatrain", f"memory of a task, {form}", peak, "GB", bar, at_least=False)
    yield _two_processes()


# One task against a bare pass.


def _to_a_bare_pass(images: int, rounds: int) -> Iterator[Figure]:
    model = a_model()
    work = forms(model, a_task(images))
    taken = turns(work, rounds)
    for form, bar in (("plain", 1.1), ("features", None), ("parts", None)):
        value, spread = ratio(taken[form], taken["bare"])
        step = (
            "modulated features and FiLM's gradient" if form == "features" else f"a step of one task, {form}"
        )
        what = f"{step}, to a bare forward and backward pass"
        details = {
            **spread,
            "seconds": {name: [round(one, 2) for one in taken[name]] for name in ("bare", form)},
        }
        yield Figure("metatrain", what, value, bar=bar, at_least=False, details=details)


def a_task(images: int = IMAGES) -> EpisodeBatch:
    """Noise has no classes, but costs what pictures cost."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2 * images, 3, SIDE, SIDE), dtype=torch.uint8, generator=generator)
    labels = torch.arange(WAY).repeat_interleave(images // WAY)
    return EpisodeBatch(WAY, pixels[:images], labels, pixels[images:], labels)


def a_model() -> CnapsModel:
    """The paper's model on its own backbone, in training mode."""
    return make_model(CnapsConfig.papers("simple"), load_backbone("resnet18", weights="random")).train()


def bare_pass(model: CnapsModel, images: Tensor) -> None:
    """Forward and backward through the backbone, with gradients of the batch-norms that FiLM modulates."""
    network = model.backbone.network
    modulated = [network.get_submodule(layer.name) for layer in model.backbone.film_layers]
    for norm in modulated:
        norm.requires_grad_(True)
    torch.autograd.backward(network(model.backbone.prepare(images)).sum())
    for norm in modulated:
        norm.requires_grad_(False).zero_grad(set_to_none=True)


def forms(model: CnapsModel, task: EpisodeBatch) -> dict[str, Callable[[], object]]:
    """The ways of going through one task."""
    images = torch.cat([task.support_images, task.query_images])
    optimiser = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    ranks = Ranks.join("cpu")

    def step(**settings: int) -> None:
        training = Optimisation(tasks=1, tasks_per_step=1, **settings)
        train_step(model, optimiser, [Task(0, task)], range(1), training, ranks, lambda: False)

    def features() -> None:
        film = Film.identity(model.backbone.film_layers)
        for part in (*film.gammas, *film.betas):
            part.requires_grad_()
        torch.autograd.backward(model.embed(images, film).sum())

    return {
        "bare": lambda: bare_pass(model, images),
        "features": features,
        "plain": step,
        "parts": lambda: step(images_at_once=AT_ONCE),
    }


# Tasks of real images against a plain implementation.


class _RealTask:
    """A task of real images and what both ways of learning from it need."""

    def __init__(self) -> None:
        from benchmarks.speed.loading import images_to_test
        from cl_cnaps.few_shot.targets import TaskShape, make_sampler

        self.model = a_model()
        self.tasks_of = images_to_test()
        self.episode = make_sampler(self.tasks_of, TaskShape(10, 5), seed=0).episode(0)
        self.labels = tuple(torch.tensor(rows[:, 0]) for rows in (self.episode.support, self.episode.query))


def _to_a_plain_implementation(rounds: int) -> Figure:
    from benchmarks.speed.loading import task_images
    from cl_cnaps.few_shot.run import with_packed_images

    task = _RealTask()
    ready = with_packed_images(task.tasks_of, SIDE)
    support = len(task.episode.support)

    def ours() -> float:
        images = task_images(ready, task.episode, SIDE)
        batch = EpisodeBatch(
            task.episode.way, images[:support], task.labels[0], images[support:], task.labels[1]
        )
        return add_gradient(task.model, batch, Optimisation(tasks=1)).loss

    with StockProcess("benchmarks.speed.metatrain", "plain", "-", "-") as stock:
        taken = turns({"plain": stock, "ours": ours}, rounds)
    value, spread = ratio(taken["plain"], taken["ours"])
    return Figure(
        "metatrain", "tasks per second, to a plain implementation", value, bar=2.0, details=dict(spread)
    )


def _serve_the_plain_implementation() -> None:
    from benchmarks.speed.loading import task_images

    task = _RealTask()
    model, episode, labels, support = task.model, task.episode, task.labels, len(task.episode.support)
    extractor = FilmLayers(model.backbone)
    larger = 2 * SIDE  # what a photo is resized from

    def plain() -> float:
        images = transformed(task_images(task.tasks_of.images, episode, larger), model.backbone.info)
        encoding = model.task_encoder.pool(model.task_encoder.set_encoder(images[:support]), labels[0], None)
        features = extractor(images, model.adapt(encoding))
        logits = dense_logits(
            *dense_covariances(features[:support], labels[0], episode.way), features[support:]
        )
        loss = torch.nn.functional.cross_entropy(logits, labels[1])
        torch.autograd.backward(loss)
        return float(loss.detach())

    serve(plain)


# Two processes, and memory: in processes of their own.


def _two_processes() -> Figure:
    """In turns, so that a busy machine slows both."""
    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(REPEATS):
        for processes, spent in taken.items():
            spent.append(_alone("step", str(processes), processes=processes)["seconds"])
    value, spread = ratio(taken[1], taken[2])
    details = {**spread, "seconds": {str(n): [round(one, 2) for one in spent] for n, spent in taken.items()}}
    return Figure("metatrain", "two processes, to one with one thread", value, bar=1.8, details=details)


def _alone(what: str, form: str, processes: int = 1) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    module = ["-m", "benchmarks.speed.metatrain", what, form, str(torch.get_num_threads())]
    command = [sys.executable, *(launcher if processes > 1 else []), *module]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise ClCnapsError(done.stderr)
    numbers: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers


def _peak_gigabytes(form: str) -> float:
    work = forms(a_model(), a_task())[form]
    for _ in range(2):  # the gradients exist from the first task on
        work()
    return round(peak_bytes() / 1e9, 2)


def _step_seconds() -> float | None:
    """Median seconds of a step of four tasks, of which this process does its share; None for all but the first."""
    torch.set_num_threads(1)
    with Ranks.join("cpu") as ranks:
        model = a_model()
        learned = [p for p in model.parameters() if p.requires_grad]
        optimiser = torch.optim.Adam(learned)
        training = Optimisation(tasks=3 * TASKS_A_STEP, tasks_per_step=TASKS_A_STEP)
        batch = a_task(40)
        spent = []
        for first in range(0, training.tasks, TASKS_A_STEP):
            step = range(first, first + TASKS_A_STEP)
            tasks = [Task(index, batch) for index in step if index % ranks.world == ranks.rank]
            spent.append(
                seconds(lambda: train_step(model, optimiser, tasks, step, training, ranks, lambda: False))  # noqa: B023
            )
        return statistics.median(spent[1:]) if ranks.first else None


def _in_a_process_of_its_own() -> None:
    what, form, threads = sys.argv[1:]
    if what == "plain":
        _serve_the_plain_implementation()
        return
    torch.set_num_threads(int(threads))
    set_up_torch()
    if what == "memory":
        print(json.dumps({"peak_gigabytes": _peak_gigabytes(form)}))
    elif (spent := _step_seconds()) is not None:
        print(json.dumps({"seconds": spent}))


if __name__ == "__main__":
    _in_a_process_of_its_own()
