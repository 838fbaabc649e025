"""An exponential average of the weights over steps: what a falling learning rate would end in, at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cl_cnaps.errors import ClCnapsError

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
