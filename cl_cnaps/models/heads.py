"""What a model knows of the classes of a task once it has seen the support set, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_cnaps.gaussian import Gaussians, Statistics


@dataclass(frozen=True)
class GaussianHead:
    """Simple and Transductive CNAPS: class statistics and the Gaussians estimated from them."""

    statistics: Statistics
    gaussians: Gaussians

    @property
    def n_classes(self) -> int:
        """K."""
        return self.gaussians.n_classes


@dataclass(frozen=True)
class LinearHead:
    """The original CNAPS: generated weights and biases."""

    weight_KD: Tensor
    bias_K: Tensor

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.weight_KD.shape[0])


Head = GaussianHead | LinearHead


_WIDEST_HIDDEN = 512
"""The width of the paper's network; wider features pass through as many, which keeps weight files small."""


class _DenseResidualBlock(nn.Module):
    """Linear-ELU-Linear-ELU-Linear, plus the input where widths allow it."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        hidden = min(width_out, _WIDEST_HIDDEN)
        self.linear1 = nn.Linear(width_in, hidden)
        self.linear2 = nn.Linear(hidden, hidden)
        self.linear3 = nn.Linear(hidden, width_out)

    def forward(self, x: Tensor) -> Tensor:
        elu = nn.functional.elu
        out: Tensor = self.linear3(elu(self.linear2(elu(self.linear1(x)))))
        return x + out if x.shape[-1] == out.shape[-1] else out


class LinearHeadGenerator(nn.Module):
    """psi^c of CNAPS (Requeima et al. 2019): each class mean becomes that class's row of a linear classifier."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = _DenseResidualBlock(width, width)
        self.bias = _DenseResidualBlock(width, 1)

    def forward(self, means_KD: Tensor) -> LinearHead:
        """The classifier of a task from its class means."""
        return LinearHead(self.weight(means_KD), torch.flatten(self.bias(means_KD)))
