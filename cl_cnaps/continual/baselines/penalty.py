"""A quadratic pull towards old weights, and the loss gradient without it: what SI and RWalk have in common."""

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
