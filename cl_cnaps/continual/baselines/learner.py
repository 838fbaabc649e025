"""What every baseline shares: tasks in order, and both heads as masks on one set of scores."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.continual.baselines.inputs import StreamInputs
from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.stream import Head
from cl_cnaps.errors import BadInputError


@contextmanager
def own_randomness(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Inside, the global generators are functions of (seed, step); outside, nothing has happened to them.

    Args:
        seed: The learner's seed.
        step: The task about to be learned, or -1 while weights are first drawn.
        device: Where the work is done.
    """
    mixed = int(np.random.SeedSequence([seed, step + 1]).generate_state(1)[0])
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            random.seed(mixed)
            np.random.seed(mixed)
            torch.manual_seed(mixed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


_BATCH = 1024


class BaselineLearner(ABC):
    """A learner (see `cl_cnaps.continual.stream.Learner`) that scores classes and takes the best allowed one."""

    def __init__(self, name: str, inputs: StreamInputs, seed: int, device: torch.device) -> None:
        self.name = name
        self.inputs = inputs
        self.seed = seed
        self.device = device
        self.learned = 0

    def learn(self, step: int) -> None:
        """Learn task number `step`, the next in order, from its support images."""
        if step != self.learned or step >= len(self.inputs.support):
            tasks = len(self.inputs.support)
            raise BadInputError(
                f"{self.name} has learned {self.learned} of {tasks} tasks and cannot learn task {step}"
            )
        with quiet_avalanche(), own_randomness(self.seed, step, self.device):
            self._learn(step)
        self.learned += 1

    def predict(self, task: int, head: Head) -> Tensor:
        """Class ids for the queries of `task`, in order."""
        allowed, scores = self._answer(task, head)
        return self.inputs.class_ids[allowed[scores.argmax(dim=1)]]

    def log_probabilities(self, task: int, head: Head) -> tuple[Tensor, Tensor] | None:
        """Ids of the classes that compete, and N x K log probabilities; None of methods whose scores are no logits."""
        if not self.scores_are_logits:
            return None
        allowed, scores = self._answer(task, head)
        return self.inputs.class_ids[allowed], scores.double().log_softmax(dim=1)

    @property
    def scores_are_logits(self) -> bool:
        """Whether the softmax of scores are the method's class probabilities."""
        return False

    @torch.no_grad()
    def _answer(self, task: int, head: Head) -> tuple[Tensor, Tensor]:
        """Columns of the K classes that compete, and scores N x K of the queries of a task."""
        ahead = len(self.inputs.support) if head == "single" and self.learned else self.learned
        if not 0 <= task < ahead:
            raise BadInputError(
                f"{self.name} has learned {self.learned} tasks and cannot predict task {task}"
            )
        if head not in ("single", "multi"):
            raise BadInputError(f"head must be 'single' or 'multi', not {head!r}")
        allowed = self.inputs.classes[task] if head == "multi" else self._seen(self.learned)
        if len(self.inputs.query(task)) == 0:
            return allowed, torch.zeros(0, len(allowed))
        return allowed, self._query_scores(task, allowed)

    def _query_scores(self, task: int, classes_K: Tensor) -> Tensor:
        """N x K scores of the queries of a task."""
        queries = torch.split(self.inputs.query(task), _BATCH)
        return torch.cat([self._scores(part.to(self.device), classes_K).cpu() for part in queries])

    @abstractmethod
    def memory_bytes(self) -> int:
        """What is carried from task to task."""

    @abstractmethod
    def _learn(self, step: int) -> None:
        """Learn the task; `self.learned` still counts those before it."""

    @abstractmethod
    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        """N x K scores of the columns `classes_K`, larger is better; changes nothing."""

    def _seen(self, tasks: int) -> Tensor:
        """Columns of the classes of the first `tasks` tasks, ascending."""
        seen = {column for classes in self.inputs.classes[:tasks] for column in classes.tolist()}
        return torch.tensor(sorted(seen))


class PerClassLearner(BaselineLearner):
    """A learner that scores each class by itself: a score is kept while it holds, for both heads and later tasks."""

    def __init__(self, name: str, inputs: StreamInputs, seed: int, device: torch.device) -> None:
        super().__init__(name, inputs, seed, device)
        self._kept: dict[tuple[int, int], Tensor] = {}
        """By task and column, scores of the task's queries that still hold; nothing of it was learned."""

    def learn(self, step: int) -> None:
        """Learn task number `step`, and drop the scores that it changed."""
        super().learn(step)
        changed = self._changed(step)
        for key in [key for key in self._kept if key[1] in changed]:
            del self._kept[key]

    def _changed(self, step: int) -> set[int]:  # noqa: ARG002
        """Columns whose scores the task changed: all, unless the method says otherwise."""
        return set(range(len(self.inputs.class_ids)))

    def _query_scores(self, task: int, classes_K: Tensor) -> Tensor:
        columns: list[int] = classes_K.tolist()
        new = [column for column in columns if (task, column) not in self._kept]
        if new:
            scores = super()._query_scores(task, torch.tensor(new))
            self._kept.update(zip(((task, column) for column in new), scores.unbind(dim=1), strict=True))
        return torch.stack([self._kept[task, column] for column in columns], dim=1)
