"""Riemannian walk. Avalanche's own gives NaN when a task has fewer iterations than one scoring interval."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cl_cnaps.continual.baselines.penalty import QuadraticPenalty


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
