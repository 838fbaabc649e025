"""Frozen batch-norm and FiLM as one affine map per channel, with the activation after it: the form that is trained.

In inference mode a batch-norm is scale * x + shift with fixed statistics, and FiLM multiplies and shifts what comes
out: both are one map. Its gradient needs no batch-norm kernel.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cl_cnaps.models.backbones import Backbone
from cl_cnaps.models.film import Film, modulated_parameters


class _AffineActivation(torch.autograd.Function):
    """clamp(scale * x + shift, low, high), per channel; without bounds, the affine map alone."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, scale_C: Tensor, shift_C: Tensor, low: float | None, high: float | None
    ) -> Tensor:
        y = torch.addcmul(_per_channel(shift_C), x, _per_channel(scale_C))
        if low is not None:
            y.clamp_(low, high)
        context.bounds = (low, high)
        context.save_for_backward(x, scale_C, y if low is not None else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale_C, y = context.saved_tensors
        low, high = context.bounds
        if y is not None:
            bound = float("inf") if high is None else high
            gradient = torch.ops.aten.hardtanh_backward(gradient, y, low, bound)
        needs_x, needs_scale, needs_shift = context.needs_input_grad[:3]
        return (
            gradient * _per_channel(scale_C) if needs_x else None,
            (gradient * x).sum(dim=(0, 2, 3)) if needs_scale else None,
            gradient.sum(dim=(0, 2, 3)) if needs_shift else None,
            None,
            None,
        )


def _per_channel(values_C: Tensor) -> Tensor:
    return values_C.view(1, -1, 1, 1)


class FilmNorm(nn.Module):
    """Stands for a batch-norm in inference mode; `weight` and `bias` are its own, or FiLM's in their stead."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("mean", norm.running_mean)
        self.register_buffer("inverse_deviation", torch.rsqrt(norm.running_var + norm.eps))
        # timm joins batch-norm and activation in one module.
        activation = getattr(norm, "act", None)
        self.bounds: tuple[float | None, float | None] = (None, None)
        if isinstance(activation, nn.ReLU6 | nn.ReLU):
            self.bounds = (0.0, 6.0 if isinstance(activation, nn.ReLU6) else None)
            activation = None
        self.activation = activation if isinstance(activation, nn.Module) else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, modulate and activate a map N x C x H x W."""
        scale_C = self.weight * self.get_buffer("inverse_deviation")
        shift_C = self.bias - scale_C * self.get_buffer("mean")
        mapped = _AffineActivation.apply(x, scale_C, shift_C, *self.bounds)  # type: ignore[no-untyped-call]
        y: Tensor = self.activation(mapped)
        return y


def training_forward(backbone: Backbone, film: Film, prepared: Tensor) -> Tensor:
    """Features N x D of prepared images under FiLM: `modulated_forward` in the form whose gradient is cheaper."""
    # Made anew for every pass, which takes little against it: tensors may have moved to another device since.
    network = _with_film_norms(backbone.network, frozenset(layer.name for layer in backbone.film_layers))
    features: Tensor = torch.func.functional_call(network, modulated_parameters(backbone, film), (prepared,))
    return features


def _with_film_norms(network: nn.Module, names: frozenset[str], prefix: str = "") -> nn.Module:
    """The same network of new module objects, its batch-norms of these names as `FilmNorm`; all tensors are shared."""
    if prefix.rstrip(".") in names:
        assert isinstance(network, nn.BatchNorm2d)
        return FilmNorm(network)
    rebuilt = copy.copy(network)
    rebuilt._parameters = dict(network._parameters)
    rebuilt._modules = {
        name: None if child is None else _with_film_norms(child, names, f"{prefix}{name}.")
        for name, child in network._modules.items()
    }
    return rebuilt
