"""The training loss: which classes compete in it, and what happens when it is no longer a number."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor, nn
from torch.nn import functional as F

from cl_cnaps.errors import ClCnapsError


class CompetingCrossEntropy(nn.Module):
    """Cross-entropy over some columns of the output layer only; the others get no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self._classes = torch.empty(0, dtype=torch.long)

    def compete(self, classes: Tensor) -> None:
        """From now on these columns (ascending) compete."""
        self._classes = classes

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean loss; `targets` are columns of the whole output layer."""
        return F.cross_entropy(logits[:, self._classes], torch.searchsorted(self._classes, targets))


class FiniteLoss(SupervisedPlugin):  # type: ignore[misc, unused-ignore]
    """Stops training as soon as the loss is NaN or infinite. Goes last, after every plugin that adds to the loss."""

    def __init__(self, method: str, task_names: tuple[str, ...]) -> None:
        super().__init__()
        self.method = method
        self.task_names = task_names
        self.step = 0

    def before_backward(self, strategy: Any, **_kwargs: Any) -> None:
        """Look at the complete loss of the mini-batch."""
        if not bool(torch.isfinite(strategy.loss)):
            raise ClCnapsError(
                f"{self.method}: the loss is {strategy.loss.item():g} at step {self.step}"
                f" (task {self.task_names[self.step]!r}), iteration {strategy.clock.train_exp_iterations}."
                " A smaller learning_rate or strength mends it."
            )
