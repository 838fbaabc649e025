"""Adaptation networks: from a task encoding to FiLM parameters, and from class means to CNAPS's classifier.

Whether an adaptation adapts is seen by FiLM that ignores the task beside FiLM from the task's own encoding. own is what
the model does. static is FiLM from one encoding averaged over all sources; swapped is FiLM from the average encoding of
a foreign source. frozen, beside them in tables, is no FiLM at all. A task encoder is alive when own beats static and
swapped costs accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import Gaussians, Statistics
from cl_cnaps.models.backbones import FilmLayer
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film

Generator = Literal["paper", "compact"]
Modulation = Literal["own", "static", "swapped"]
Column = Literal["own", "static", "swapped", "frozen"]
COLUMNS: tuple[Column, ...] = ("own", "static", "swapped", "frozen")


class _Processor(nn.Module):
    """Three residual dense layers with ReLU between, times a learned regulariser that starts near zero."""

    def __init__(self, channels: int, offset: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(channels, channels) for _ in range(3))
        self.regulariser = nn.Parameter(torch.empty(channels).normal_(0, 0.001))
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = x + layer(x)
            if number < 2:
                x = torch.relu(x)
        return x * self.regulariser + self.offset


class _PaperBlock(nn.Module):
    """gamma1, beta1, gamma2, beta2 of one residual block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma1, self.beta1 = _Processor(channels, 1.0), _Processor(channels, 0.0)
        self.gamma2, self.beta2 = _Processor(channels, 1.0), _Processor(channels, 0.0)


class _PaperStage(nn.Module):
    """One resolution of the ResNet: a shared layer, then its blocks."""

    def __init__(self, channels: int, n_blocks: int) -> None:
        super().__init__()
        self.shared = nn.Linear(ENCODING_WIDTH, channels)
        self.blocks = nn.ModuleList(_PaperBlock(channels) for _ in range(n_blocks))


class PaperAdaptation(nn.Module):
    """The paper's 'film' adaptation, for networks of residual blocks with two modulated batch-norms each."""

    def __init__(self, layers: Sequence[FilmLayer]) -> None:
        super().__init__()
        self.stages = nn.ModuleList()
        for stage, members in groupby(layers, key=lambda layer: layer.name.split(".")[0]):
            names = list(members)
            if len(names) % 2 or len({layer.channels for layer in names}) != 1:
                raise BadInputError(
                    f"the paper's adaptation network needs blocks of two batch-norms of equal width; {stage} has "
                    f"{[layer.channels for layer in names]}. Use the compact one"
                )
            self.stages.append(_PaperStage(names[0].channels, len(names) // 2))

    def forward(self, encoding: Tensor, image_size: int) -> Film:  # noqa: ARG002
        """FiLM parameters for a task encoding (64); those of the paper do not depend on the image size."""
        gammas, betas = [], []
        for stage in self.stages:
            assert isinstance(stage, _PaperStage)
            shared = torch.relu(stage.shared(encoding))
            for block in stage.blocks:
                assert isinstance(block, _PaperBlock)
                gammas += [block.gamma1(shared), block.gamma2(shared)]
                betas += [block.beta1(shared), block.beta2(shared)]
        return Film(tuple(gammas), tuple(betas))

    def regularisation(self) -> Tensor:
        """Sum of squared regularisers; the loss adds 0.001 of it per task."""
        squares = [m.regulariser.square().sum() for m in self.modules() if isinstance(m, _Processor)]
        return torch.stack(squares).sum()


class CompactAdaptation(nn.Module):
    """A code of the task and one linear head per layer, starting at the identity: for any batch-norm backbone.

    gamma and beta are b + W c: b, the head's bias, serves all tasks; W times the code c is what the task adds, and is
    what the regulariser bears on. The code has few, bounded numbers, so that a task unlike all training tasks cannot
    move FiLM further than training did. It is scaled down, since an optimiser that moves every weight alike moves
    FiLM through W as many times as far as through b as the code has numbers.
    """

    _HIDDEN, _CODE, _SCALE = 128, 32, 0.25

    def __init__(self, layers: Sequence[FilmLayer]) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(ENCODING_WIDTH + 1, self._HIDDEN),
            nn.ReLU(),
            nn.Linear(self._HIDDEN, self._CODE),
            nn.Tanh(),
        )
        self.heads = nn.ModuleList(nn.Linear(self._CODE, 2 * layer.channels) for layer in layers)
        for head in self.heads:
            assert isinstance(head, nn.Linear)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, encoding: Tensor, image_size: int) -> Film:
        """FiLM parameters for a task encoding (64) and the side of the images that the backbone sees."""
        code = self._SCALE * self.trunk(
            torch.cat([encoding, encoding.new_tensor([math.log2(image_size / 96)])])
        )
        pairs = [head(code).chunk(2) for head in self.heads]
        return Film(tuple(1 + gamma for gamma, _ in pairs), tuple(beta for _, beta in pairs))

    def regularisation(self) -> Tensor:
        """Sum of squares of the heads' weights, scaled as the code is: what tasks add to FiLM."""
        squares = [head.get_parameter("weight").square().sum() for head in self.heads]
        return torch.stack(squares).sum() * self._SCALE**2


def make_adaptation(kind: Generator, layers: Sequence[FilmLayer]) -> PaperAdaptation | CompactAdaptation:
    """The adaptation network of the given kind."""
    return PaperAdaptation(layers) if kind == "paper" else CompactAdaptation(layers)


def substitute(kind: Modulation, own: Tensor, sources: Mapping[str, Tensor]) -> Tensor:
    """Return the encoding that FiLM is generated from, given a task's own and the mean encodings of some sources.

    The foreign source is the one whose mean encoding is farthest from the task's own.
    """
    if kind == "own":
        return own
    means_S64 = torch.stack(list(sources.values())).to(own)
    return means_S64.mean(dim=0) if kind == "static" else means_S64[(means_S64 - own).norm(dim=1).argmax()]


@torch.no_grad()
def film_distance(first: Film, second: Film) -> float:
    """Return the root mean square difference of two modulations, over all gammas and betas."""
    pairs = zip((*first.gammas, *first.betas), (*second.gammas, *second.betas), strict=True)
    squares = torch.cat([(a - b).flatten().double() for a, b in pairs]).square()
    return float(squares.mean().sqrt())


# What a model knows of the classes of a task once it has seen the support set.


@dataclass(frozen=True)
class GaussianHead:
    """Simple and Transductive CNAPS: class statistics and the Gaussians estimated from them."""

    statistics: Statistics
    gaussians: Gaussians


@dataclass(frozen=True)
class LinearHead:
    """The original CNAPS: generated weights and biases."""

    weight_KD: Tensor
    bias_K: Tensor


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
