"""A stream of tasks as images in memory, what a learner of it can do, and how it is scored.

A learner learns a task, then predicts the queries of every task seen so far, for each head. Query labels are read in
`run_stream` and nowhere else.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.metrics.continual import (
    expected_calibration_error,
    forward_transfer,
    negative_log_likelihood,
)
from cl_cnaps.torch_setup import release_spare_memory

Head = Literal["single", "multi"]


@dataclass(frozen=True)
class Task:
    """One task (S^t, Q^t): labelled support images and the query images that score it.

    Images are uint8, N x 3 x H x W; labels are class ids of the whole stream.
    """

    name: str
    classes: tuple[int, ...]
    support_images: Tensor
    support_labels: Tensor
    query_images: Tensor
    query_labels: Tensor


@dataclass(frozen=True)
class Stream:
    """Tasks in the order in which they are learned."""

    name: str
    tasks: tuple[Task, ...]


class Learner(Protocol):
    """Learns the tasks of one stream in order and predicts the queries of any task seen so far."""

    def learn(self, step: int) -> None:
        """Learn the stream's task number `step`, from its support images (and, if transductive, unlabelled queries)."""

    def predict(self, task: int, head: Head) -> Tensor:
        """Class ids for the queries of `task`, in order; never changes what was learned.

        With the multi head only that task's own classes compete, with the single head all classes learned so far. The
        single head answers for tasks to come as well.
        """

    def log_probabilities(self, task: int, head: Head) -> tuple[Tensor, Tensor] | None:
        """Ids of the K classes that compete, and N x K log probabilities in float64; None if it has none."""

    def memory_bytes(self) -> int:
        """What is carried from task to task: statistics, weights that change, stored images."""


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Fraction of predictions that are right."""
    return float((predicted == labels).to(torch.float64).mean())


@dataclass(frozen=True)
class RunResult:
    """One run over a stream: A[step, task] for each head as rows, and what it cost."""

    rows: list[dict[str, Any]]
    seconds: float
    memory_bytes: int
    measures: list[dict[str, Any]] = field(default_factory=list)
    """One row for each head: forward transfer; calibration error and likelihood of all queries after the last step."""
    confusion: list[dict[str, Any]] = field(default_factory=list)
    """How many queries of a class were given to which, after the last step; by class id, none that is 0."""


def run_stream(
    learner: Learner,
    stream: Stream,
    heads: Sequence[Head],
    run: int,
    progress: Callable[[int, dict[Head, float]], None] = lambda _step, _accuracy: None,
) -> RunResult:
    """Run a learner over a stream; `progress` is called with each step's mean accuracy per head over the tasks seen."""
    rows: list[dict[str, Any]] = []
    predicted: dict[Head, list[Tensor]] = {}
    ahead = _Ahead(stream)
    seconds = 0.0
    for step in range(len(stream.tasks)):
        start = time.perf_counter()
        learner.learn(step)
        means: dict[Head, float] = {}
        for head in heads:
            predicted[head] = [learner.predict(task, head) for task in range(step + 1)]
            scores = [
                accuracy(found, task.query_labels)
                for found, task in zip(predicted[head], stream.tasks, strict=False)
            ]
            means[head] = sum(scores) / len(scores)
            rows += [
                {
                    "run": run,
                    "step": step,
                    "task": task,
                    "head": head,
                    "accuracy": score,
                    "n_queries": len(stream.tasks[task].query_labels),
                }
                for task, score in enumerate(scores)
            ]
        seconds += time.perf_counter() - start
        if "single" in heads:
            ahead.look(learner, step)
        progress(step, means)
        release_spare_memory()
    measures = [
        {
            "run": run,
            "head": head,
            "forward_transfer": ahead.transfer() if head == "single" else None,
            **calibration(learner, stream, head),
        }
        for head in heads
    ]
    confusion = [
        {"head": head, "label": label, "predicted": given, "count": count}
        for head in heads
        for (label, given), count in sorted(_pairs(predicted[head], stream).items())
    ]
    return RunResult(rows, seconds, learner.memory_bytes(), measures, confusion)


class _Ahead:
    """The single head's accuracy on the next task, before it is learned: 0 where none of its classes was seen."""

    def __init__(self, stream: Stream) -> None:
        self._tasks = stream.tasks
        self._seen: set[int] = set()
        self._accuracy: list[float] = []
        self._chance: list[float] = []

    def look(self, learner: Learner, step: int) -> None:
        """Ask about the task after `step`."""
        self._seen.update(self._tasks[step].classes)
        if step + 1 == len(self._tasks):
            return
        labels = self._tasks[step + 1].query_labels
        known = torch.isin(labels, torch.tensor(sorted(self._seen)))
        self._chance.append(float(known.double().mean()) / len(self._seen))
        some = bool(known.any())
        self._accuracy.append(accuracy(learner.predict(step + 1, "single"), labels) if some else 0.0)

    def transfer(self) -> float | None:
        found = forward_transfer(np.array([self._accuracy]), np.array(self._chance))
        return None if found is None else float(found[0])


def calibration(learner: Learner, stream: Stream, head: Head) -> dict[str, float | None]:
    """Calibration error and negative log-likelihood over the queries of all tasks; None without probabilities.

    The likelihood is None too where a right class was held to be impossible.
    """
    confidence, right, losses = [], [], []
    for number, task in enumerate(stream.tasks):
        found = learner.log_probabilities(number, head)
        if found is None:
            return {"calibration_error": None, "negative_log_likelihood": None}
        ids, log_probabilities = found
        columns = (task.query_labels.cpu()[:, None] == ids).int().argmax(dim=1).numpy()
        logs = log_probabilities.numpy()
        confidence.append(np.exp(logs.max(axis=1)))
        right.append(logs.argmax(axis=1) == columns)
        losses.append(negative_log_likelihood(logs, columns) * len(columns))
    loss = sum(losses) / sum(map(len, right))
    return {
        "calibration_error": expected_calibration_error(np.concatenate(confidence), np.concatenate(right)),
        "negative_log_likelihood": loss if math.isfinite(loss) else None,
    }


def _pairs(predicted: Sequence[Tensor], stream: Stream) -> Counter[tuple[int, int]]:
    """How often a class was given to queries of a class."""
    pairs: Counter[tuple[int, int]] = Counter()
    for found, task in zip(predicted, stream.tasks, strict=True):
        pairs.update(zip(task.query_labels.tolist(), found.tolist(), strict=True))
    return pairs
