"""FiLM in the textbook way: extra layers after the batch-norms of a network in PyTorch's default memory format."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from cl_cnaps.models.backbones import Backbone
from cl_cnaps.models.film import Film


class FilmLayers:
    """A copy of a backbone, contiguous in memory, with FiLM multiplied and added after its batch-norms."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = copy.deepcopy(backbone)
        self.network: nn.Module = self.backbone.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self._film: Film | None = None
        for place, layer in enumerate(backbone.film_layers):
            norm = self.network.get_submodule(layer.name)
            norm.register_forward_hook(lambda _m, _i, out, place=place: self._modulated(out, place))

    def _modulated(self, out: Tensor, place: int) -> Tensor:
        if self._film is None:
            return out
        gamma, beta = self._film.gammas[place], self._film.betas[place]
        return out * gamma.view(1, -1, 1, 1) + beta.view(1, -1, 1, 1)

    def __call__(self, images: Tensor, film: Film) -> Tensor:
        """Features N x D of normalised images under FiLM."""
        self._film = film
        features: Tensor = self.network(images.contiguous())
        return features


def random_film(backbone: Backbone, seed: int) -> Film:
    """FiLM away from the identity, as a task would have it."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [layer.channels for layer in backbone.film_layers]
    return Film(
        tuple(1 + 0.1 * torch.randn(n, generator=generator) for n in sizes),
        tuple(0.1 * torch.randn(n, generator=generator) for n in sizes),
    )
