"""One optimiser step: the tasks of a step shared out over processes, one gradient, one update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cl_cnaps.episodes.episode import EpisodeBatch, Purpose, episode_generator
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH, TaskNorm
from cl_cnaps.training.parts import embed_in_parts, encode_in_parts
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.tasks import Task


@dataclass(frozen=True)
class TaskScore:
    """How a task went."""

    loss: float
    """Mean cross-entropy of its queries."""
    accuracy: float


class NotFiniteError(Exception):
    """A loss or a gradient is NaN or infinite; its text names which."""


def add_gradient(model: CnapsModel, batch: EpisodeBatch, training: Optimisation) -> TaskScore:
    """Add a task's gradient to the parameters' `.grad`; the model is in training mode.

    The query cross-entropy counts as one of the tasks of a step; the regulariser counts whole, as in the released
    code. Raises NotFiniteError, with whatever gradient there is by then, if a number is not finite.
    """
    try:
        logits_QK = task_logits(model, batch, training)
        labels_Q = batch.query_labels.to(logits_QK.device)
        loss = nn.functional.cross_entropy(logits_QK / model.temperature, labels_Q)
    except BadInputError as error:  # the classifier refuses features that are not finite
        raise NotFiniteError(str(error)) from error
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NotFiniteError(f"the loss is {value}")
    objective = loss / training.tasks_per_step
    if training.film_regulariser:
        objective = objective + training.film_regulariser * model.adaptation.regularisation()
    torch.autograd.backward(objective)
    return TaskScore(value, accuracy(logits_QK, labels_Q))


def task_logits(model: CnapsModel, batch: EpisodeBatch, training: Optimisation) -> Tensor:
    """Query logits Q x K of one task, differentiable with respect to everything that is learned."""
    support, query, labels_N = batch.support_images, batch.query_images, batch.support_labels
    images = torch.cat([support, query])
    step = training.images_at_once
    if training.activations_gb is not None:
        step = max(1, int(training.activations_gb * 2**30) // model.training_bytes_per_image())
    if step is None or (training.images_at_once is None and step >= len(images)):
        features_ND = model.embed(images, model.adapt(model.encode(support, labels_N, query)))
    else:
        film = model.adapt(encode_in_parts(model, support, labels_N, query, step))
        features_ND = embed_in_parts(model, images, film, step)
    return model.task_logits(features_ND, labels_N, batch.way)


def accuracy(logits_QK: Tensor, labels_Q: Tensor) -> float:
    """Share of queries whose largest logit is their class's."""
    return float((logits_QK.detach().argmax(dim=1) == labels_Q).double().mean())


class RunningStatistics:
    """Takes each task's effect on the running statistics apart, to be applied in order at the end of a step.

    In training a batch-norm moves its statistics r to (1 - m) r + m b, for each batch b it sees, and does not read
    them. Started from r = 0 it leaves behind what the task adds; n batches also shrink what was there before by
    (1 - m)^n. So every process can apply every task's effect, in the order of the tasks, to the same start.
    """

    def __init__(self, module: nn.Module) -> None:
        self._norms = [
            m
            for m in module.modules()
            if isinstance(m, nn.BatchNorm2d) and m.track_running_stats and m.training
        ]
        self._before = [buffer.clone() for buffer in self._buffers()]
        self._batches_before = [m.get_buffer("num_batches_tracked").clone() for m in self._norms]
        self.width = 1 + sum(buffer.numel() for buffer in self._before) if self._norms else 0
        """Numbers that one task's effect takes."""

    def _buffers(self) -> list[Tensor]:
        return [m.get_buffer(name) for m in self._norms for name in ("running_mean", "running_var")]

    def begin_task(self) -> None:
        """Start a task from nothing."""
        for norm in self._norms:
            norm.reset_running_stats()
            norm.get_buffer("running_var").zero_()

    def effect(self) -> Tensor:
        """Return the effect of a task: its number of batches, then what it added; float64, `width` numbers."""
        if not self._norms:
            return torch.zeros(0, dtype=torch.float64)
        batches = self._norms[0].get_buffer("num_batches_tracked").reshape(1)
        return torch.cat([part.flatten().double().cpu() for part in (batches, *self._buffers())])

    def restore(self) -> None:
        """Put back the statistics as they were before the step."""
        for buffer, before in zip(self._buffers(), self._before, strict=True):
            buffer.copy_(before)
        for norm, batches in zip(self._norms, self._batches_before, strict=True):
            norm.get_buffer("num_batches_tracked").copy_(batches)

    def apply(self, effects_TW: Tensor) -> None:
        """Move the statistics from before the step by the tasks' effects, in their order."""
        self.restore()
        for effect_W in effects_TW if self._norms else ():
            batches, *added = effect_W.split([1, *(buffer.numel() for buffer in self._before)])
            for norm in self._norms:
                norm.get_buffer("num_batches_tracked").add_(int(batches))
            momentum = self._norms[0].momentum
            assert momentum is not None
            for buffer, part in zip(self._buffers(), added, strict=True):
                buffer.mul_((1 - momentum) ** int(batches)).add_(part.to(buffer).view_as(buffer))


_WARM_UP = 10


class AveragedWeights:
    """The average of a model's trained parameters; without a decay it is the parameters themselves."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._decay = decay
        self._steps = 0
        self._average = {name: p.detach().clone() for name, p in self._parameters.items()} if decay else {}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters after one more step; the first steps count more, so that the start is forgotten."""
        decay = min(self._decay, (1 + self._steps) / (_WARM_UP + self._steps))
        for name, average in self._average.items():
            average.lerp_(self._parameters[name], 1 - decay)
        self._steps += 1

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights for a while."""
        with torch.no_grad():
            before = {name: self._parameters[name].clone() for name in self._average}
            for name, average in self._average.items():
                self._parameters[name].copy_(average)
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in before.items():
                    self._parameters[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint."""
        return {**self._average, "steps": torch.tensor(self._steps)} if self._average else {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over a checkpoint's tensors."""
        if set(state) != set(self.state()):
            raise ClCnapsError("the checkpoint does not have the averaged weights that the recipe needs")
        for name, average in self._average.items():
            average.copy_(state[name])
        if self._average:
            self._steps = int(state["steps"])


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
    """A signal to stop came in the middle of a step; the model is as it was before the step."""


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


def share(step: range, ranks: Ranks, images: Callable[[int], int]) -> list[int]:
    """Return which tasks of a step this process works on; `images` tells how many images a task has.

    The largest task comes first, and each goes to the process with the fewest images so far, so that none waits long.
    """
    if ranks.world == 1:
        return list(step)
    sizes = {index: images(index) for index in step}
    loads = [0] * ranks.world
    mine = []
    for index in sorted(step, key=lambda index: -sizes[index]):
        rank = loads.index(min(loads))
        loads[rank] += sizes[index]
        if rank == ranks.rank:
            mine.append(index)
    return sorted(mine)


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
    `stop` is true in one.
    """
    model.train()
    if training.learn == "head":
        model.task_encoder.eval()
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
    if isinstance(norm, TaskNorm) and norm.training:
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
        report = torch.tensor([index + 1, *reason.encode()[:_REASON]])
        rows[ranks.rank, : len(report)] = report
    failed = [row for row in ranks.sum(rows).tolist() if row[0]]
    if not failed:
        return None
    number, *letters = min(failed)
    return BadTask(number - 1, bytes(filter(None, letters)).decode(errors="replace"))
