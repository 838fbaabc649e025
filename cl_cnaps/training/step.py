"""One optimiser step: the tasks of a step shared out over processes, one gradient, one update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from cl_cnaps.episodes.episode import Purpose, episode_generator
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH, TaskNorm
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.running_statistics import RunningStatistics
from cl_cnaps.training.task_data import Task
from cl_cnaps.training.task_loss import NotFiniteError, add_gradient

_REASON = 256
"""Most bytes of a reason that are passed between processes."""


@dataclass(frozen=True)
class StepScore:
    """How a step went: means over its tasks."""

    loss: float
    accuracy: float
    gradient_norm: float
    learning_rate: float


@dataclass(frozen=True)
class BadTask:
    """A task whose loss or gradient is not finite."""

    index: int
    reason: str


class StoppedInStep(Exception):
    """Somebody asked to stop in the middle of a step; the model is as it was before the step."""


def learning_rate(training: Optimisation, tasks_done: int) -> float:
    """The rate of the step that begins after so many tasks."""
    step = tasks_done // training.tasks_per_step
    rate = training.learning_rate * min(1.0, (step + 1) / max(1, training.warm_up_steps))
    if training.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * min(1.0, tasks_done / training.tasks)))
    return rate


def image_size(training: Optimisation, seed: int, first: int, usual: int) -> int:
    """The side of the images in the step that begins with task `first`: a function of the seed and that number."""
    if not training.image_sizes:
        return usual
    weights = np.asarray(training.image_size_weights or (1.0,) * len(training.image_sizes))
    rng = episode_generator(seed, first, Purpose.IMAGE_SIZE)
    return int(rng.choice(training.image_sizes, p=weights / weights.sum()))


def shares(first: int, last: int, tasks_per_step: int, ranks: Ranks) -> Iterator[int]:
    """The numbers of all tasks from `first` to before `last` that this process works on, step after step."""
    for start in range(first, last, tasks_per_step):
        yield from range(start + ranks.rank, min(start + tasks_per_step, last), ranks.world)


def train_step(
    model: CnapsModel,
    optimiser: torch.optim.Optimizer,
    tasks: Iterable[Task],
    step: range,
    training: Optimisation,
    ranks: Ranks,
    stop: Callable[[], bool],
) -> StepScore | BadTask:
    """Learn from the tasks numbered `step`, of which `tasks` are this process's; all processes do the same update.

    Returns the bad task, before any update, if there is one in any process. Raises StoppedInStep in all processes if
    `stop` says so in one.
    """
    model.train()
    optimiser.zero_grad(set_to_none=True)
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    statistics = RunningStatistics(model)
    norm = model.task_encoder.norm
    encoded = ENCODING_WIDTH if isinstance(norm, TaskNorm) else 0
    rows_TR = torch.zeros(len(step), 2 + encoded + statistics.width, dtype=torch.float64)
    stopped = False
    bad: int | None = None
    reason = ""
    for task in tasks:
        if stop():
            stopped = True
            break
        statistics.begin_task()
        try:
            score = add_gradient(model, task.batch.to(ranks.device), training)
            if not math.isfinite(gradient_norm(parameters)):
                raise NotFiniteError("the gradient is not finite")
        except NotFiniteError as error:
            bad, reason = task.index, str(error)
            break
        row_R = rows_TR[task.index - step.start]
        row_R[:2] = torch.tensor([score.loss, score.accuracy], dtype=torch.float64)
        if encoded and model.task_encoder.raw is not None:
            row_R[2 : 2 + encoded] = model.task_encoder.raw.double().cpu()
        row_R[2 + encoded :] = statistics.effect()
    found = _first_bad(bad, reason, ranks)
    any_stopped = float(ranks.sum(torch.tensor([float(stopped)]))) > 0
    if found is not None or any_stopped:
        statistics.restore()
        optimiser.zero_grad(set_to_none=True)
        if found is not None:
            return found
        raise StoppedInStep
    rows_TR = ranks.sum(rows_TR)
    statistics.apply(rows_TR[:, 2 + encoded :])
    if isinstance(norm, TaskNorm):
        norm.update(rows_TR[:, 2 : 2 + encoded])
    ranks.sum_gradients(parameters)
    rate = learning_rate(training, step.start)
    for group in optimiser.param_groups:
        group["lr"] = rate
    total_norm = gradient_norm(parameters)
    if training.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, training.clip_norm)
    optimiser.step()
    loss, accuracy = rows_TR[:, :2].mean(dim=0).tolist()
    return StepScore(loss, accuracy, total_norm, rate)


def gradient_norm(parameters: Iterable[torch.nn.Parameter]) -> float:
    """Return the norm of all gradients together."""
    # torch.nn.utils.get_total_norm came with PyTorch 2.6
    norms = [torch.linalg.vector_norm(p.grad) for p in parameters if p.grad is not None]
    return float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0


def _first_bad(index: int | None, reason: str, ranks: Ranks) -> BadTask | None:
    """The bad task with the lowest number over all processes, with the reason that its process gave."""
    # One row per process: the task's number and one more (0: none), then the letters of the reason.
    rows = torch.zeros(ranks.world, 1 + _REASON, dtype=torch.int64)
    if index is not None:
        said = torch.tensor([index + 1, *reason.encode()[:_REASON]])
        rows[ranks.rank, : len(said)] = said
    failed = [row for row in ranks.sum(rows).tolist() if row[0]]
    if not failed:
        return None
    number, *letters = min(failed)
    return BadTask(number - 1, bytes(filter(None, letters)).decode(errors="replace"))
