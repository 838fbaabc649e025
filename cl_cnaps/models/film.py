"""FiLM as replaced batch-norm parameters.

FiLM multiplies a batch-norm's output by gamma and adds beta, per channel. A batch-norm ends in an affine map of
its own, weight w and bias b, so the modulated layer is the same layer with weight gamma * w and bias
gamma * b + beta: no layer is rewritten, and any batch-norm network can be modulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import Backbone, FilmLayer


@dataclass(frozen=True)
class Film:
    """One gamma and one beta per modulated layer, in the order of the backbone's `film_layers`."""

    gammas: tuple[Tensor, ...]
    betas: tuple[Tensor, ...]

    @staticmethod
    def identity(layers: Sequence[FilmLayer], like: Tensor | None = None) -> Film:
        """No modulation: gamma 1, beta 0; of the dtype and on the device of `like`."""
        like = torch.empty(0) if like is None else like
        return Film(
            tuple(like.new_ones(layer.channels) for layer in layers),
            tuple(like.new_zeros(layer.channels) for layer in layers),
        )


def modulated_parameters(backbone: Backbone, film: Film) -> dict[str, Tensor]:
    """The batch-norm weights and biases that stand for the modulated network, by name."""
    if not len(film.gammas) == len(film.betas) == len(backbone.film_layers):
        raise BadInputError(
            f"FiLM has {len(film.gammas)} layers, backbone {backbone.info.name} modulates {len(backbone.film_layers)}"
        )
    parameters: dict[str, Tensor] = {}
    for layer, gamma, beta in zip(backbone.film_layers, film.gammas, film.betas, strict=True):
        norm = backbone.network.get_submodule(layer.name)
        assert isinstance(norm, nn.BatchNorm2d)
        if not gamma.shape == beta.shape == (layer.channels,):
            raise BadInputError(
                f"FiLM for {layer.name} needs {layer.channels} gammas and betas, "
                f"got {tuple(gamma.shape)} and {tuple(beta.shape)}"
            )
        parameters[f"{layer.name}.weight"] = gamma * norm.weight
        parameters[f"{layer.name}.bias"] = gamma * norm.bias + beta
    return parameters


def modulated_forward(backbone: Backbone, film: Film, prepared: Tensor) -> Tensor:
    """Features N x D of prepared images under FiLM: the differentiable form, for training."""
    features: Tensor = torch.func.functional_call(
        backbone.network, modulated_parameters(backbone, film), (prepared,)
    )
    return features
