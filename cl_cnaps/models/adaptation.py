"""Adaptation networks: from a task encoding to FiLM parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import FilmLayer
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film

Generator = Literal["paper", "compact"]


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
