"""The inference form of a modulated backbone: batch-norm and FiLM folded into the convolutions.

At test time a batch-norm is a fixed affine map per channel, so it and FiLM disappear into the weight and bias of
the convolution before it: adaptation then costs nothing per image. Which convolution feeds which batch-norm is
found by watching one forward pass; a network that does not come out the same folded is not folded.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_cnaps.models.backbones import Backbone
from cl_cnaps.models.film import Film, modulated_forward, modulated_parameters

TOLERANCE = 1e-4
"""Largest relative difference between a fast form and the plain one that still counts as the same network."""

LARGEST_BATCH = 64
"""Most images that go through at once: more gain nothing on a CPU."""

_ALIVE_AT_ONCE = 7
"""Activations of the widest layer's size that exist together: inputs that callers hold, branches and their sum."""


@dataclass(frozen=True)
class FoldedNetwork:
    """A network with its weights for one task: images in, features out."""

    network: nn.Module
    bytes_per_image: int
    """Activations held at the widest place of the network."""

    def images_within(self, memory_limit: int, bytes_to_prepare: int = 0) -> int:
        """How many images may go through at once, each of which takes so many bytes more to prepare."""
        return max(1, min(LARGEST_BATCH, memory_limit // (self.bytes_per_image + bytes_to_prepare)))

    def __call__(self, prepared: Tensor) -> Tensor:
        """Features N x D of prepared images."""
        features: Tensor = self.network(prepared)
        return features


class Folder:
    """Folds FiLM parameters into one backbone; made once, used for every task.

    It keeps nothing but which batch-norm follows which convolution; numbers are read from the backbone at each fold.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self._pairs, self._bytes_per_image = _watch(backbone)
        if self._pairs and not self._same_as_plain():
            self._pairs = {}

    @property
    def folded_layers(self) -> int:
        """How many batch-norms vanished into convolutions."""
        return len(self._pairs)

    @torch.no_grad()
    def fold(self, film: Film) -> FoldedNetwork:
        """The backbone with `film` built into its weights; what FiLM does not touch is shared with the backbone."""
        network = self.backbone.network
        affine = modulated_parameters(self.backbone, film)
        replacements: dict[nn.Module, nn.Module] = {}
        for norm_name, conv_name in self._pairs.items():
            norm, conv = network.get_submodule(norm_name), network.get_submodule(conv_name)
            assert isinstance(norm, nn.BatchNorm2d)
            assert isinstance(conv, nn.Conv2d)
            weight = affine.pop(f"{norm_name}.weight", norm.weight)
            bias = affine.pop(f"{norm_name}.bias", norm.bias)
            replacements[conv] = _folded(conv, norm, weight, bias)
            replacements[norm] = _what_follows(norm)
        folded = _rebuilt(network, replacements)
        for name, tensor in affine.items():  # batch-norms that stayed
            module, _, parameter = name.rpartition(".")
            setattr(folded.get_submodule(module), parameter, nn.Parameter(tensor, requires_grad=False))
        return FoldedNetwork(folded, self._bytes_per_image)

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
        return bool((plain - folded).abs().max() <= TOLERANCE * plain.abs().max())


@torch.no_grad()
def _watch(backbone: Backbone) -> tuple[dict[str, str], int]:
    """One image through the network, watched.

    Returns the name of the convolution that each batch-norm reads directly, and the bytes of activations per image.
    """
    network = backbone.network
    # Keeps the tensors alive, so that identity means identity; the version tells of changes in place.
    produced: list[tuple[Tensor, int, str]] = []
    pairs: dict[str, str] = {}
    calls: Counter[str] = Counter()
    widest = 0

    def after_conv(name: str, output: Tensor) -> None:
        nonlocal widest
        calls[name] += 1
        produced.append((output, output._version, name))
        widest = max(widest, output.numel() * output.element_size())

    def before_norm(name: str, inputs: tuple[Tensor, ...]) -> None:
        calls[name] += 1
        for tensor, version, conv_name in produced:
            if tensor is inputs[0] and tensor._version == version:
                pairs[name] = conv_name

    handles = []
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            handles.append(module.register_forward_hook(lambda _m, _i, out, name=name: after_conv(name, out)))
        elif isinstance(module, nn.BatchNorm2d) and module.affine and module.track_running_stats:
            handles.append(
                module.register_forward_pre_hook(lambda _m, ins, name=name: before_norm(name, ins))
            )
    try:
        size = backbone.info.image_size
        network(torch.zeros(1, 3, size, size).to(next(network.parameters())))
    finally:
        for handle in handles:
            handle.remove()
    # A module used more than once cannot carry one layer's numbers.
    pairs = {norm: conv for norm, conv in pairs.items() if calls[norm] == 1 and calls[conv] == 1}
    return pairs, _ALIVE_AT_ONCE * max(widest, 1)


def _rebuilt(module: nn.Module, replacements: dict[nn.Module, nn.Module]) -> nn.Module:
    """The same network of new module objects with some of them replaced; all tensors are shared."""
    if module not in replacements:
        rebuilt = copy.copy(module)
        rebuilt._parameters = dict(module._parameters)
        rebuilt._modules = {
            name: None if child is None else _rebuilt(child, replacements)
            for name, child in module._modules.items()
        }
        replacements[module] = rebuilt
    return replacements[module]


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d, weight: Tensor, bias: Tensor) -> nn.Conv2d:
    """The convolution that does what it and a batch-norm with this weight and bias do after one another."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = weight * torch.rsqrt(norm.running_var + norm.eps)
    shift = bias - scale * norm.running_mean
    if conv.bias is not None:
        shift = shift + scale * conv.bias
    kernel = (conv.weight * scale.view(-1, 1, 1, 1)).contiguous(memory_format=torch.channels_last)
    folded = copy.copy(conv)  # of its own class: timm pads in subclasses
    folded._parameters = {
        "weight": nn.Parameter(kernel, requires_grad=False),
        "bias": nn.Parameter(shift, requires_grad=False),
    }
    return folded


def _what_follows(norm: nn.Module) -> nn.Module:
    """timm joins batch-norm, drop-out and activation in one module: the activation has to stay."""
    activation = getattr(norm, "act", None)
    return activation if isinstance(activation, nn.Module) else nn.Identity()
