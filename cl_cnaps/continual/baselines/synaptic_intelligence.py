"""Synaptic intelligence. Avalanche's own is inert on a CPU: its anchors are views of the live weights."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_cnaps.continual.baselines.penalty import QuadraticPenalty


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
