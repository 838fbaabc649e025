"""FiLM in the form that is trained: norm, FiLM and activation as one map, whose gradient is cheap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cl_cnaps.models.backbones import Backbone, WithoutCopies, pads_by_copying
from cl_cnaps.models.film import Film, activation_of, modulated_parameters, rebuilt


class _AffineActivation(torch.autograd.Function):
    """clamp(scale * x + shift, low, high), per channel; without bounds, the affine map alone."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, scale_C: Tensor, shift_C: Tensor, low: float | None, high: float | None
    ) -> Tensor:
        y, scale, shift = torch.empty_like(x), _per_channel(scale_C), _per_channel(shift_C)
        for part in _parts(x):
            mapped = torch.addcmul(shift, x[part], scale, out=y[part])
            if low is not None:
                mapped.clamp_(low, high)
        context.bounds = (low, high)
        context.save_for_backward(x, scale_C, y if low is not None else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale_C, y = context.saved_tensors
        low, high = context.bounds
        bound = float("inf") if high is None else high
        needs_x, needs_scale, needs_shift = context.needs_input_grad[:3]
        x_gradient = torch.empty_like(x) if needs_x else None
        scale_gradient = torch.zeros_like(scale_C) if needs_scale else None
        shift_gradient = torch.zeros_like(scale_C) if needs_shift else None
        for part in _parts(x):
            inside = gradient[part]
            if y is not None:
                inside = torch.ops.aten.hardtanh_backward(inside, y[part], low, bound)
            if x_gradient is not None:
                torch.mul(inside, _per_channel(scale_C), out=x_gradient[part])
            if scale_gradient is not None:
                scale_gradient += (inside * x[part]).sum(dim=(0, 2, 3))
            if shift_gradient is not None:
                shift_gradient += inside.sum(dim=(0, 2, 3))
        return x_gradient, scale_gradient, shift_gradient, None, None


_IN_CACHE = 1 << 19
"""Numbers of a map that one thread works on at a time."""


def _parts(x: Tensor) -> list[slice]:
    """The images of a map, some at a time: what one step reads, the step before has just written into the cache.

    That takes about a third less time on one thread of a CPU; several would lose as much by waiting for each other.
    """
    alone = x.device.type == "cpu" and torch.get_num_threads() == 1
    images = max(1, _IN_CACHE // max(1, x[:1].numel())) if alone else max(1, len(x))
    return [slice(start, start + images) for start in range(0, len(x), images)]


def _per_channel(values_C: Tensor) -> Tensor:
    return values_C.view(1, -1, 1, 1)


class FilmNorm(nn.Module):
    """A batch-norm in inference mode, FiLM and the activation after it as one map, whose gradient is cheap.

    `weight` and `bias` are the batch-norm's own, or FiLM's in their stead.
    """

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("mean", norm.running_mean)
        self.register_buffer("inverse_deviation", torch.rsqrt(norm.running_var + norm.eps))
        # timm joins batch-norm and activation in one module.
        activation = activation_of(norm)
        self.bounds: tuple[float | None, float | None] = (None, None)
        if isinstance(activation, nn.ReLU6 | nn.ReLU):
            self.bounds = (0.0, 6.0 if isinstance(activation, nn.ReLU6) else None)
            activation = nn.Identity()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, modulate and activate a map N x C x H x W."""
        scale_C = self.weight * self.get_buffer("inverse_deviation")
        shift_C = self.bias - scale_C * self.get_buffer("mean")
        mapped = _AffineActivation.apply(x, scale_C, shift_C, *self.bounds)  # type: ignore[no-untyped-call]
        y: Tensor = self.activation(mapped)
        return y


def training_forward(backbone: Backbone, film: Film, prepared: Tensor) -> Tensor:
    """Return features N x D of prepared images under FiLM, in the form whose gradient is cheapest."""
    # Made anew for every pass, which takes little against it: tensors may have moved to another device since.
    norms = (backbone.network.get_submodule(layer.name) for layer in backbone.film_layers)
    replaced: dict[nn.Module, nn.Module] = {
        norm: FilmNorm(norm) for norm in norms if isinstance(norm, nn.BatchNorm2d)
    }
    for convolution in filter(pads_by_copying, backbone.network.modules()):
        replaced[convolution] = WithoutCopies(convolution)
    network = rebuilt(backbone.network, replaced)
    features: Tensor = torch.func.functional_call(network, modulated_parameters(backbone, film), (prepared,))
    return features
