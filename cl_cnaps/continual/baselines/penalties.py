"""A quadratic pull towards old weights, by synaptic intelligence and by Riemannian walk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor, nn


class QuadraticPenalty(SupervisedPlugin):  # type: ignore[misc, unused-ignore]
    """Adds strength * sum importance * (weight - anchor)^2 to the loss from the second task on.

    A subclass watches the weights move: `watch` after every backward pass and `moved` after every step of the
    optimizer. Anchors are copies, never views: a view would follow the live weights and the penalty stay zero.
    """

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength
        self.anchors: dict[str, Tensor] = {}
        self.importances: dict[str, Tensor] = {}

    def before_training_exp(self, strategy: Any, **_kwargs: Any) -> None:
        """Start a task."""
        self.start(snapshot(strategy.model))

    def before_backward(self, strategy: Any, **_kwargs: Any) -> None:
        """Add the penalty."""
        if self.importances:
            pulls = [
                (self.importances[name] * (weight - self.anchors[name]).square()).sum()
                for name, weight in strategy.model.named_parameters()
            ]
            strategy.loss += self.strength * torch.stack(pulls).sum()

    def after_backward(self, strategy: Any, **_kwargs: Any) -> None:
        """Hand the gradients of the loss alone to the method."""
        self.watch(self._loss_gradients(strategy.model))

    def after_update(self, strategy: Any, **_kwargs: Any) -> None:
        """Hand the weights after the optimizer's step to the method."""
        self.moved(snapshot(strategy.model))

    def after_training_exp(self, strategy: Any, **_kwargs: Any) -> None:
        """Finish a task: new importances, new anchors."""
        weights = snapshot(strategy.model)
        self.importances = self.finish(weights)
        self.anchors = weights

    def carried(self) -> Iterable[Tensor]:
        """Tensors kept from task to task beside the network's weights."""
        yield from self.anchors.values()
        yield from self.importances.values()

    @abstractmethod
    def start(self, weights: dict[str, Tensor]) -> None:
        """A task starts from these weights."""

    @abstractmethod
    def watch(self, gradients: dict[str, Tensor]) -> None:
        """Gradients of the mini-batch's loss, without the penalty's."""

    @abstractmethod
    def moved(self, weights: dict[str, Tensor]) -> None:
        """Weights after the step that followed."""

    @abstractmethod
    def finish(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Importances (none negative) for the tasks to come; `weights` end this one."""

    @torch.no_grad()
    def _loss_gradients(self, model: nn.Module) -> dict[str, Tensor]:
        # The penalty's gradient is known in closed form: taking it away costs less than a second backward pass.
        gradients = {}
        for name, weight in model.named_parameters():
            gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
            if self.importances:
                gradient -= 2 * self.strength * self.importances[name] * (weight - self.anchors[name])
            gradients[name] = gradient
        return gradients


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


class SynapticIntelligence(QuadraticPenalty):
    """Importance = what a weight's path contributed to the fall of the loss, per squared distance moved.

    Zenke, Poole and Ganguli, "Continual Learning Through Synaptic Intelligence", ICML 2017, equations 3 to 5.
    """

    def __init__(self, strength: float, damping: float) -> None:
        super().__init__(strength)
        self.damping = damping
        self._start: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._paths: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}

    def start(self, weights: dict[str, Tensor]) -> None:
        """Begin the path integrals of a task."""
        self._start = self._last = weights
        self._paths = {name: torch.zeros_like(weight) for name, weight in weights.items()}

    def watch(self, gradients: dict[str, Tensor]) -> None:
        """Remember the gradient until the step it causes."""
        self._gradients = gradients

    def moved(self, weights: dict[str, Tensor]) -> None:
        """Extend each weight's path integral of -gradient over movement (eq. 3)."""
        for name, weight in weights.items():
            self._paths[name] -= self._gradients[name] * (weight - self._last[name])
        self._last = weights

    def finish(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add this task's importances to the earlier ones (eq. 5)."""
        totals = {}
        for name, weight in weights.items():
            # A weight that happened to raise the loss is not important: a negative one would push it away for ever.
            gained = self._paths[name].clamp(min=0) / ((weight - self._start[name]).square() + self.damping)
            totals[name] = self.importances.get(name, 0) + gained
        self._start, self._last, self._paths, self._gradients = {}, {}, {}, {}
        return totals


class RiemannianWalk(QuadraticPenalty):
    """Importance = running Fisher information (EWC++) + path score, each scaled to at most one.

    Chaudhry et al., "Riemannian Walk for Incremental Learning", ECCV 2018, equations 6 to 8. The iterations
    left over at the end of a task are scored as a shorter interval, so that no task is without scores.
    """

    def __init__(self, strength: float, fisher_rate: float, interval: int) -> None:
        super().__init__(strength)
        self.fisher_rate = fisher_rate
        self.interval = interval
        self._fisher: dict[str, Tensor] = {}
        self._scores: dict[str, Tensor] = {}
        self._task_scores: dict[str, Tensor] = {}
        self._falls: dict[str, Tensor] = {}
        self._checkpoint: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}
        self._since_checkpoint = 0

    def start(self, weights: dict[str, Tensor]) -> None:
        """Begin a task's scores."""
        self._task_scores = _zeros_like(weights)
        self._open_interval(weights)
        self._last = weights

    def watch(self, gradients: dict[str, Tensor]) -> None:
        """Update the running Fisher information with the mini-batch's squared gradient (eq. 6)."""
        self._gradients = gradients
        for name, gradient in gradients.items():
            newest = gradient.square()
            before = self._fisher.get(name, newest)
            self._fisher[name] = self.fisher_rate * newest + (1 - self.fisher_rate) * before

    def moved(self, weights: dict[str, Tensor]) -> None:
        """Add to each weight's share in the fall of the loss; close the interval when it is full."""
        for name, weight in weights.items():
            self._falls[name] -= self._gradients[name] * (weight - self._last[name])
        self._last = weights
        self._since_checkpoint += 1
        if self._since_checkpoint == self.interval:
            self._close_interval(weights)

    def finish(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Average the scores with the earlier tasks' and scale both terms (eq. 8)."""
        if self._since_checkpoint:
            self._close_interval(weights)
        if self._scores:
            self._scores = {name: (self._scores[name] + new) / 2 for name, new in self._task_scores.items()}
        else:
            self._scores = self._task_scores
        fisher, scores = _scaled(self._fisher), _scaled(self._scores)
        self._task_scores, self._falls, self._checkpoint, self._last, self._gradients = {}, {}, {}, {}, {}
        return {name: fisher[name] + scores[name] for name in fisher}

    def carried(self) -> Iterable[Tensor]:
        """Anchors, Fisher information and scores: the importances follow from the last two."""
        yield from self.anchors.values()
        yield from self._fisher.values()
        yield from self._scores.values()

    def _open_interval(self, weights: dict[str, Tensor]) -> None:
        self._falls = _zeros_like(weights)
        self._checkpoint = weights
        self._since_checkpoint = 0

    def _close_interval(self, weights: dict[str, Tensor]) -> None:
        # Eq. 7: the fall of the loss per half squared distance in the Fisher metric.
        for name, weight in weights.items():
            distance = self._fisher[name] * (weight - self._checkpoint[name]).square() / 2
            tiny = torch.finfo(weight.dtype).eps
            self._task_scores[name] += self._falls[name].clamp(min=0) / (distance + tiny)
        self._open_interval(weights)


def _zeros_like(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.zeros_like(weight) for name, weight in weights.items()}


def _scaled(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Divided by the largest of all; as they are when all are zero (a task of one class has no gradient)."""
    largest = torch.stack([value.max() for value in values.values()]).max()
    if largest == 0:
        return dict(values)
    return {name: value / largest for name, value in values.items()}
