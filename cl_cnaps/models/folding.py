"""The inference form of a modulated backbone: batch-norm and FiLM folded into the convolutions.

At test time a batch-norm is a fixed affine map per channel, so it and FiLM disappear into the weight and bias of
the convolution before it: adaptation then costs nothing per image. Which convolution feeds which batch-norm is
found by watching one forward pass; a network that does not come out the same folded is not folded.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cl_cnaps.models.backbones import Backbone
from cl_cnaps.models.film import Film, modulated_forward, modulated_parameters

_TOLERANCE = 1e-3
"""Largest relative difference between the folded and the plain form that still counts as the same network."""


@dataclass(frozen=True)
class FoldedNetwork:
    """A network with its weights for one task: images in, features out."""

    skeleton: nn.Module
    weights: Mapping[str, Tensor]
    bytes_per_image: int
    """Activations held at the widest place of the network."""

    def images_within(self, memory_limit: int) -> int:
        """How many images may go through at once; more than 64 gain nothing on a CPU."""
        return max(1, min(64, memory_limit // self.bytes_per_image))

    def __call__(self, prepared: Tensor) -> Tensor:
        """Features N x D of prepared images."""
        features: Tensor = torch.func.functional_call(self.skeleton, dict(self.weights), (prepared,))
        return features


class Folder:
    """Folds FiLM parameters into one backbone; made once, used for every task."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.device = next(backbone.network.parameters()).device
        self._pairs, self._bytes_per_image = _watch(backbone)
        self._skeleton = _skeleton(backbone.network, self._pairs)
        if self._pairs and not self._same_as_plain():
            self._pairs = {}
            self._skeleton = _skeleton(backbone.network, self._pairs)

    @property
    def folded_layers(self) -> int:
        """How many batch-norms vanished into convolutions."""
        return len(self._pairs)

    @torch.no_grad()
    def fold(self, film: Film) -> FoldedNetwork:
        """The backbone with `film` built into its weights."""
        network = self.backbone.network
        affine = modulated_parameters(self.backbone, film)
        weights: dict[str, Tensor] = {}
        for norm_name, conv_name in self._pairs.items():
            norm, conv = network.get_submodule(norm_name), network.get_submodule(conv_name)
            assert isinstance(norm, nn.BatchNorm2d)
            assert isinstance(conv, nn.Conv2d)
            assert norm.running_mean is not None
            assert norm.running_var is not None
            weight = affine.pop(f"{norm_name}.weight", norm.weight)
            bias = affine.pop(f"{norm_name}.bias", norm.bias)
            scale = weight * torch.rsqrt(norm.running_var + norm.eps)
            shift = bias - scale * norm.running_mean
            if conv.bias is not None:
                shift = shift + scale * conv.bias
            folded = conv.weight * scale.view(-1, 1, 1, 1)
            weights[f"{conv_name}.weight"] = folded.contiguous(memory_format=torch.channels_last)
            weights[f"{conv_name}.bias"] = shift
        weights.update(affine)  # batch-norms that stayed
        return FoldedNetwork(self._skeleton, weights, self._bytes_per_image)

    @torch.no_grad()
    def _same_as_plain(self) -> bool:
        """Whether folding gives the features of the plain form, tried on noise with a non-trivial FiLM."""
        generator = torch.Generator().manual_seed(0)
        like = next(self.backbone.network.parameters())
        channels = [layer.channels for layer in self.backbone.film_layers]
        film = Film(
            tuple((1 + 0.2 * torch.randn(n, generator=generator)).to(like) for n in channels),
            tuple((0.2 * torch.randn(n, generator=generator)).to(like) for n in channels),
        )
        noise = torch.randn(2, 3, *(self.backbone.info.image_size,) * 2, generator=generator).to(like)
        noise = noise.to(memory_format=torch.channels_last)
        plain, folded = modulated_forward(self.backbone, film, noise), self.fold(film)(noise)
        return bool((plain - folded).abs().max() <= _TOLERANCE * plain.abs().max())


@torch.no_grad()
def _watch(backbone: Backbone) -> tuple[dict[str, str], int]:
    """One image through the network, watched.

    Returns the name of the convolution that each batch-norm reads directly, and the bytes of activations per image.
    """
    network = backbone.network
    produced: list[tuple[Tensor, str]] = []  # keeps the tensors alive, so that identity means identity
    pairs: dict[str, str] = {}
    calls: Counter[str] = Counter()
    widest = 0

    def after_conv(name: str, output: Tensor) -> None:
        nonlocal widest
        calls[name] += 1
        produced.append((output, name))
        widest = max(widest, output.numel() * output.element_size())

    def before_norm(name: str, inputs: tuple[Tensor, ...]) -> None:
        calls[name] += 1
        for tensor, conv_name in produced:
            if tensor is inputs[0]:
                pairs[name] = conv_name

    handles = []
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            handles.append(module.register_forward_hook(lambda _m, _i, out, name=name: after_conv(name, out)))
        elif isinstance(module, nn.BatchNorm2d) and module.affine and module.track_running_stats:
            handles.append(module.register_forward_pre_hook(lambda _m, ins, name=name: before_norm(name, ins)))
    try:
        size = backbone.info.image_size
        network(torch.zeros(1, 3, size, size).to(next(network.parameters())))
    finally:
        for handle in handles:
            handle.remove()
    # A module used more than once cannot carry one layer's numbers. An input, an output and a copy of it coexist.
    pairs = {norm: conv for norm, conv in pairs.items() if calls[norm] == 1 and calls[conv] == 1}
    return pairs, 3 * max(widest, 1)


def _skeleton(network: nn.Module, pairs: Mapping[str, str]) -> nn.Module:
    """A copy of the network without the folded batch-norms; its convolutions have a bias."""
    skeleton = copy.deepcopy(network).eval().requires_grad_(False).to(memory_format=torch.channels_last)
    for norm_name, conv_name in pairs.items():
        norm = skeleton.get_submodule(norm_name)
        assert isinstance(norm, _BatchNorm)
        skeleton.set_submodule(norm_name, _what_follows(norm))
        conv = skeleton.get_submodule(conv_name)
        assert isinstance(conv, nn.Conv2d)
        conv.bias = nn.Parameter(torch.zeros_like(conv.weight[:, 0, 0, 0]), requires_grad=False)
    return skeleton


def _what_follows(norm: nn.Module) -> nn.Module:
    """timm joins batch-norm, drop-out and activation in one module: the activation has to stay."""
    activation = getattr(norm, "act", None)
    return activation if isinstance(activation, nn.Module) else nn.Identity()
