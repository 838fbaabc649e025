"""How a stream's costs grow: time per task and memory per class over 200 tasks, by their slopes in three streams.

1,000 classes in 200 tasks of five, five shots and five queries a class, of noise, on the default backbone at 32 pixels
so that what grows is not hidden behind embedding. A task's time is that of learning it and of answering its queries by
the multi head; scoring all tasks seen after every step takes longer with every task, whatever does it. A slope is the
median of those between all pairs of tasks (Theil and Sen), so that a few tasks that were interrupted do not tilt it;
what it comes to over the whole stream is held against the bar, as the mean of the streams with its interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import seconds
from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.stream import Stream, Task
from cl_cnaps.metrics.intervals import estimate
from cl_cnaps.models.loading import load_model

CLASSES_A_TASK, SHOTS, SIDE, FIRST, STREAMS = 5, 5, 32, 10, 3
_FLAT_TIME, _FLAT_MEMORY = 1.1, 1.02


@dataclass(frozen=True)
class Growth:
    """One number a task: seconds, and bytes per class after it."""

    seconds: list[float]
    bytes_per_class: list[float]


def measure(quick: bool) -> Iterator[Figure]:
    """Time, then memory."""
    growths = [grow(40 if quick else 200, seed) for seed in range(STREAMS)]
    times = [growth.seconds[FIRST:] for growth in growths]
    sizes = [growth.bytes_per_class[FIRST:] for growth in growths]
    tasks = len(growths[0].seconds)
    for what, values, bar, details in (
        ("time of a task", times, _FLAT_TIME, {"seconds": [round(one, 4) for one in growths[0].seconds]}),
        ("memory per class", sizes, _FLAT_MEMORY, {}),
    ):
        found = estimate(np.array([1 + len(one) * slope(one) for one in values]))
        yield Figure(
            "growth",
            f"{what}, over tasks {FIRST} to {tasks} by its slope",
            round(found.mean, 3),
            bar=bar,
            at_least=False,
            details={
                "ci95": None if found.ci95 is None else round(found.ci95, 3),
                "per_stream": [round(one, 3) for one in found.per_run],
                "median": [statistics.median(one) for one in values],
                "bytes_per_class": [round(one) for one in growths[0].bytes_per_class],
                **details,
            },
        )


def slope(values: Sequence[float]) -> float:
    """Change per task as a share of the median, by the median of the slopes between all pairs of tasks."""
    values_T = np.asarray(values)
    early, late = np.triu_indices(len(values_T), 1)
    return float(np.median((values_T[late] - values_T[early]) / (late - early)) / np.median(values_T))


def grow(tasks: int, seed: int = 0) -> Growth:
    """Learn a stream of noise."""
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    model = load_model("simple", weights="none", adaptation="none", image_size=SIDE, device="cpu").model
    learner = CnapsLearner(noise_stream(tasks, seed), model, "first")
    spent, held = [], []
    for step in range(tasks):

        def one(step: int = step) -> None:
            learner.learn(step)
            learner.predict(step, "multi")

        spent.append(seconds(one))
        held.append(learner.memory_bytes() / ((step + 1) * CLASSES_A_TASK))
    return Growth(spent, held)


def noise_stream(tasks: int, seed: int = 0) -> Stream:
    """Tasks of five new classes each; a class is a colour with noise."""
    generator = torch.Generator().manual_seed(seed)

    def images(colours: torch.Tensor) -> torch.Tensor:
        noise = torch.randint(0, 100, (CLASSES_A_TASK * SHOTS, 3, SIDE, SIDE), generator=generator)
        return (colours.repeat_interleave(SHOTS, dim=0) + noise).to(torch.uint8)

    made = []
    for number in range(tasks):
        ids = torch.arange(number * CLASSES_A_TASK, (number + 1) * CLASSES_A_TASK)
        colours = torch.randint(0, 150, (CLASSES_A_TASK, 3, 1, 1), generator=generator)
        labels = ids.repeat_interleave(SHOTS)
        made.append(
            Task(f"task {number}", tuple(ids.tolist()), images(colours), labels, images(colours), labels)
        )
    return Stream("noise", tuple(made))
