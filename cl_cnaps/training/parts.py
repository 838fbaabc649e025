"""Networks over many images in parts: the same numbers and gradients, with the activations of one part at a time.

Each part goes through the network without keeping anything, and once more when its gradient is wanted
(`torch.utils.checkpoint`). Batch-norm in training couples all images of a set, through their mean and variance
per channel; those are gathered from the parts first and are part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import BackboneSetEncoder, SetEncoder
from cl_cnaps.models.film import Film
from cl_cnaps.models.film_training import training_forward


def encode_in_parts(model: CnapsModel, support: Tensor, labels_N: Tensor, query: Tensor, step: int) -> Tensor:
    """`model.encode` in training mode, at most `step` images at once."""
    encoder = model.task_encoder.set_encoder
    support_N64 = set_encode_in_parts(encoder, model.backbone.prepare, support, step)
    query_Q64 = None
    if model.task_encoder.uses_queries:
        query_Q64 = set_encode_in_parts(encoder, model.backbone.prepare, query, step)
    return model.task_encoder.pool(support_N64, labels_N, query_Q64)


def embed_in_parts(model: CnapsModel, images: Tensor, film: Film, step: int) -> Tensor:
    """`model.embed` under FiLM that is being learned, at most `step` images at once: N x D."""
    layers = len(film.gammas)

    def features(part: Tensor, *modulation: Tensor) -> Tensor:
        same = Film(modulation[:layers], modulation[layers:])
        return training_forward(model.backbone, same, model.backbone.prepare(part))

    return torch.cat(
        [_recomputed(features, part, *film.gammas, *film.betas) for part in torch.split(images, step)]
    )


def set_encode_in_parts(
    encoder: SetEncoder | BackboneSetEncoder,
    prepare: Callable[[Tensor], Tensor],
    images: Tensor,
    step: int,
) -> Tensor:
    """One vector per image, N x 64, from uint8 images, at most `step` at once."""
    if isinstance(encoder, BackboneSetEncoder):  # keeps no activations but its last
        return torch.cat([encoder(prepare(part)) for part in torch.split(images, step)])
    parts = [_shrunk(prepare(part), encoder.config.image_size) for part in torch.split(images, step)]
    if encoder.config.norm == "group" or not encoder.training:
        return torch.cat([_recomputed(encoder, part) for part in parts])
    for layer in encoder.layers:
        assert isinstance(layer, nn.ModuleDict)
        conv, norm = layer["conv"], layer["norm"]
        assert isinstance(norm, nn.BatchNorm2d)
        mean_C, variance_C = _moments(conv, norm, parts)
        parts = [_recomputed(_normalised, part, conv, norm, mean_C, variance_C) for part in parts]
    return torch.cat([part.mean(dim=(2, 3)) for part in parts])


def _normalised(
    part: Tensor, conv: nn.Module, norm: nn.BatchNorm2d, mean_C: Tensor, variance_C: Tensor
) -> Tensor:
    """A layer of the set encoder, its batch-norm by the given moments."""
    scale_C = norm.weight * torch.rsqrt(variance_C + norm.eps)
    shift_C = norm.bias - mean_C * scale_C
    x = conv(part) * scale_C.view(1, -1, 1, 1) + shift_C.view(1, -1, 1, 1)
    return nn.functional.max_pool2d(torch.relu_(x), 2)


def _moments(conv: nn.Module, norm: nn.BatchNorm2d, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and variance per channel of what the convolution makes of all parts; the norm's running ones follow."""

    def of_part(part: Tensor) -> tuple[Tensor, Tensor]:
        variance_C, mean_C = torch.var_mean(conv(part), dim=(0, 2, 3), correction=0)
        return mean_C, variance_C

    means_PC, variances_PC = (
        torch.stack(each) for each in zip(*(_recomputed(of_part, p) for p in parts), strict=True)
    )
    weights_P1 = means_PC.new_tensor([len(part) for part in parts])[:, None]
    weights_P1 = weights_P1 / weights_P1.sum()
    mean_C = (weights_P1 * means_PC).sum(dim=0)
    variance_C = (weights_P1 * (variances_PC + (means_PC - mean_C).square())).sum(dim=0)
    values = sum(part.shape[0] * part.shape[2] * part.shape[3] for part in parts)
    with torch.no_grad():
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.num_batches_tracked is not None
        assert norm.momentum is not None
        norm.running_mean.lerp_(mean_C, norm.momentum)
        norm.running_var.lerp_(variance_C * (values / max(1, values - 1)), norm.momentum)
        norm.num_batches_tracked.add_(1)
    return mean_C, variance_C


def _shrunk(prepared: Tensor, size: int | None) -> Tensor:
    if size is None or prepared.shape[-1] == size:
        return prepared
    return nn.functional.adaptive_avg_pool2d(prepared, size)


def _recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value without what its gradient needs, which is computed again when it is wanted."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
