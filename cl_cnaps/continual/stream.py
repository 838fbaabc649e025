"""A stream of tasks as images in memory, and what a learner of such a stream can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

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
    class_names: tuple[str, ...]
    tasks: tuple[Task, ...]
    origin: str
    """Where the images came from, as a person is told it."""

    @property
    def image_size(self) -> int:
        """Side of the square images, in pixels."""
        return int(self.tasks[0].support_images.shape[-1])


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
