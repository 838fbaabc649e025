"""Where the time goes: in a run of the default stream, and in a step of meta-training.

By part of the program, timed from outside and without what a part calls of the others; then by PyTorch operator, for
the embedding of a batch and for a whole training step. The stream is the one that `cl-cnaps stream` runs, on the
digits that it finds; the step is of four 10-way 5-shot tasks of mini-ImageNet, on the shipped weights. Shares
are of one run after a first one that warms up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks.speed.figures import Figure
from benchmarks.speed.stopwatch import Parts, time_by_part
from cl_cnaps.continual import continual_cnaps
from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, plan_stream
from cl_cnaps.continual.memory import ClassMemory
from cl_cnaps.continual.stream import run_stream
from cl_cnaps.data import open_source
from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.models.loading import load_model
from cl_cnaps.training import step as training_step
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.tasks import Task

TASKS = 4
_TOLD = 4
"""Operators that are named; what others take is added up."""


def measure(quick: bool) -> Iterator[Figure]:
    """The stream, then the step."""
    yield from _of_the_stream(quick)
    yield from _of_a_step(quick)


def _of_the_stream(quick: bool) -> Iterator[Figure]:
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    model = load_model("simple", device="cpu").model
    shots = 10 if quick else 100
    plan = plan_stream(StreamConfig("split-mnist", shots, shots), open_source("mnist", download=False))

    def run() -> None:
        stream = plan.stream(0, model.backbone.info.image_size)
        run_stream(CnapsLearner(stream, model, "first"), stream, ("single",), 0)

    run()
    learner = continual_cnaps.ContinualCnaps
    parts: Parts = {
        "reading and resizing images": [(StreamPlan, "stream")],
        "encoding the first task": [(model, "encode")],
        "folding FiLM into the weights": [(model, "adapt"), (model, "fold")],
        "embedding": [(model, "embed_folded")],
        "class statistics": [
            (continual_cnaps, "support_statistics"),
            (continual_cnaps, "estimate"),
            (ClassMemory, "learn"),
        ],
        "logits": [(learner, "group_logits")],
    }
    yield from _shares("default stream", time_by_part(run, parts))
    images = plan.stream(0, model.backbone.info.image_size).tasks[0].query_images[:64]
    network = model.fold(model.adapt(None))
    yield from _operators("embedding", lambda: model.embed_folded(images, network))


def _of_a_step(quick: bool) -> Iterator[Figure]:
    from benchmarks.speed.loading import images_to_test, task_images
    from cl_cnaps.few_shot.run import with_packed_images
    from cl_cnaps.few_shot.targets import TaskShape, make_sampler

    model = load_model("simple", device="cpu").model.train()
    size = model.backbone.info.image_size
    tasks_of = images_to_test()
    sampler = make_sampler(tasks_of, TaskShape(5, 2) if quick else TaskShape(10, 5), seed=0)
    packed = with_packed_images(tasks_of, size)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    training = Optimisation(tasks=TASKS, tasks_per_step=TASKS)

    def load(index: int) -> Task:
        episode = sampler.episode(index)
        images, split = task_images(packed, episode, size), len(episode.support)
        labels = (torch.tensor(rows[:, 0]) for rows in (episode.support, episode.query))
        support_labels, query_labels = labels
        return Task(
            index,
            EpisodeBatch(episode.way, images[:split], support_labels, images[split:], query_labels),
        )

    loading = _Loading(load)

    def one_step() -> None:
        with Ranks.join("cpu") as ranks:
            tasks = (loading.load(index) for index in range(TASKS))
            training_step.train_step(model, optimiser, tasks, range(TASKS), training, ranks, lambda: False)

    one_step()
    parts: Parts = {
        "loading tasks from packed images": [(loading, "load")],
        "encoding tasks": [(model, "encode")],
        "generating FiLM": [(model, "adapt")],
        "backbone, forward": [(model, "embed")],
        "classifier, forward": [(model, "fit"), (model, "logits")],
        "backward": [(torch.autograd, "backward")],
        "update": [(optimiser, "step")],
    }
    yield from _shares("training step", time_by_part(one_step, parts))
    yield from _operators("training step", one_step)


class _Loading:
    """Something whose function can be watched."""

    def __init__(self, load: Callable[[int], Task]) -> None:
        self.load = load


def _shares(of: str, seconds: Mapping[str, float]) -> Iterator[Figure]:
    total = sum(seconds.values())
    for part, spent in seconds.items():
        yield _share(f"{of}: {part}", spent, total, {"s": round(spent, 3), "of_s": round(total, 3)})


def _operators(of: str, work: Callable[[], object]) -> Iterator[Figure]:
    """The operators that take most of the time by themselves."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        work()
    own = {row.key.removeprefix("aten::"): float(row.self_cpu_time_total) for row in found.key_averages()}
    total = sum(own.values())
    first = sorted(own, key=lambda name: -own[name])[:_TOLD]
    for name in first:
        yield _share(f"{of}, operators: {name}", own[name], total)
    yield _share(f"{of}, operators: all others", total - sum(own[name] for name in first), total)


def _share(what: str, spent: float, total: float, details: Mapping[str, Any] | None = None) -> Figure:
    return Figure("profile", what, round(100 * spent / total, 1), "%", details=details or {})
