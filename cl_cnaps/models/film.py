"""FiLM in forms that agree: replaced parameters, and the folded form for inference; `film_training` has another.

FiLM multiplies a norm's output by gamma and adds beta, per channel. A batch-, layer- or group-norm ends in an affine
map of its own, weight w and bias b, so the modulated layer is the same layer with weight gamma * w and bias
gamma * b + beta: no layer is rewritten. At test time a batch-norm and its FiLM disappear into the convolution before
it, the affine part of a layer-norm into the linear layers (or unpadded convolutions) after it.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import Backbone, FilmLayer, WithoutCopies, pads_by_copying

TOLERANCE = 1e-4
"""Largest relative difference between the folded form and the plain one that still counts as the same network."""

LARGEST_BATCH = 64
"""Most images that go through at once: more gain nothing on a CPU."""

_ALIVE_AT_ONCE = 7
"""Activations of the widest layer's size that exist together: inputs that callers hold, branches and their sum."""


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
    """Return the weights and biases of norms that stand for the modulated network, by name."""
    if not len(film.gammas) == len(film.betas) == len(backbone.film_layers):
        raise BadInputError(
            f"FiLM has {len(film.gammas)} layers, backbone {backbone.info.name} modulates {len(backbone.film_layers)}"
        )
    parameters: dict[str, Tensor] = {}
    for layer, gamma, beta in zip(backbone.film_layers, film.gammas, film.betas, strict=True):
        if not gamma.shape == beta.shape == (layer.channels,):
            raise BadInputError(
                f"FiLM for {layer.name} needs {layer.channels} gammas and betas, "
                f"got {tuple(gamma.shape)} and {tuple(beta.shape)}"
            )
        norm = backbone.network.get_submodule(layer.name)
        parameters[f"{layer.name}.weight"] = gamma * norm.get_parameter("weight")
        parameters[f"{layer.name}.bias"] = gamma * norm.get_parameter("bias") + beta
    return parameters


def modulated_forward(backbone: Backbone, film: Film, prepared: Tensor) -> Tensor:
    """Return features N x D of prepared images under FiLM, by replaced parameters: the plain form."""
    features: Tensor = torch.func.functional_call(
        backbone.network, modulated_parameters(backbone, film), (prepared,)
    )
    return features


# The folded form.


@dataclass(frozen=True)
class FoldedNetwork:
    """A network with its weights for one task: images in, features out."""

    network: nn.Module
    bytes_per_image: int
    """Activations held at the widest part of the network."""

    def images_within(self, memory_limit: int, bytes_to_prepare: int = 0) -> int:
        """Return how many images may go through at once, each of which takes so many bytes more to prepare."""
        return max(1, min(LARGEST_BATCH, memory_limit // (self.bytes_per_image + bytes_to_prepare)))

    def __call__(self, prepared: Tensor) -> Tensor:
        """Return features N x D of prepared images."""
        features: Tensor = self.network(prepared)
        return features


@dataclass(frozen=True)
class _Flow:
    """Which layers follow one another directly."""

    convolution_before: Mapping[str, str]
    """Of each batch-norm."""
    linear_after: Mapping[str, tuple[str, ...]]
    """All that reads each layer-norm."""
    pads_without_copies: bool = True
    """Whether convolutions that pad by copying their input do it without."""


class Folder:
    """Folds FiLM parameters into one backbone; made once, used for every task.

    It keeps nothing but which layer follows which, found by watching one forward pass; numbers are read from the
    backbone at each fold. What does not come out the same folded is not folded.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        found, self._bytes_per_image = _watch(backbone)
        for flow in (
            found,
            _Flow(found.convolution_before, {}),
            _Flow({}, found.linear_after),
            _Flow({}, {}),
            _Flow({}, {}, pads_without_copies=False),
        ):
            self._flow = flow
            if not flow.pads_without_copies or self._same_as_plain():
                break

    @property
    def folded_layers(self) -> int:
        """How many norms have their affine part in convolutions or linear layers."""
        return len(self._flow.convolution_before) + len(self._flow.linear_after)

    @torch.no_grad()
    def fold(self, film: Film) -> FoldedNetwork:
        """Return the backbone with `film` built into its weights; what FiLM does not touch is shared with it."""
        network = self.backbone.network
        affine = modulated_parameters(self.backbone, film)

        def parameters(name: str) -> tuple[Tensor, Tensor]:
            norm = network.get_submodule(name)
            return (
                affine.pop(f"{name}.weight", norm.get_parameter("weight")),
                affine.pop(f"{name}.bias", norm.get_parameter("bias")),
            )

        replaced: dict[nn.Module, nn.Module] = {}
        for norm_name, conv_name in self._flow.convolution_before.items():
            norm, conv = network.get_submodule(norm_name), network.get_submodule(conv_name)
            assert isinstance(norm, nn.BatchNorm2d)
            replaced[conv] = _with_norm_before_output(conv, norm, *parameters(norm_name))
            replaced[norm] = activation_of(norm)
        for norm_name, readers in self._flow.linear_after.items():
            weight, bias = parameters(norm_name)
            for reader in map(network.get_submodule, readers):
                replaced[reader] = _with_affine_input(replaced.get(reader, reader), weight, bias)
            norm = network.get_submodule(norm_name)
            replaced[norm] = _with_parameters(norm, weight=None, bias=None)
        if self._flow.pads_without_copies:
            for convolution in filter(pads_by_copying, network.modules()):
                replaced[convolution] = WithoutCopies(replaced.get(convolution, convolution))
        folded = rebuilt(network, replaced)
        for name, tensor in affine.items():  # norms that stayed
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
def _watch(backbone: Backbone) -> tuple[_Flow, int]:
    """Watch one image go through the network.

    Returns which layers follow one another, and the bytes of activations per image.
    """
    network = backbone.network
    # Keeps the tensors alive, so that identity means identity; the version shows changes in place.
    produced: list[tuple[Tensor, int, str]] = []
    before: dict[str, str] = {}
    after: dict[str, list[str]] = {}
    calls: Counter[str] = Counter()
    widest = 0

    def enter(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls[name] += 1
        for tensor, version, source_name in produced:
            if inputs and tensor is inputs[0] and tensor._version == version:
                source = network.get_submodule(source_name)
                if isinstance(source, nn.Conv2d) and _has_fixed_statistics(module):
                    before[name] = source_name
                elif isinstance(source, nn.LayerNorm) and _takes_affine_input(module):
                    after.setdefault(source_name, []).append(name)

    def leave(name: str, _module: nn.Module, _inputs: object, output: object) -> None:
        nonlocal widest
        if isinstance(output, Tensor):
            produced.append((output, output._version, name))
            widest = max(widest, output.numel() * output.element_size())

    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d | nn.LayerNorm):
                hooks.enter_context(module.register_forward_pre_hook(partial(enter, name)))
            if isinstance(module, nn.Conv2d | nn.Linear) or _ends_affine(module):
                hooks.enter_context(module.register_forward_hook(partial(leave, name)))
        size = backbone.info.image_size
        network(torch.zeros(1, 3, size, size).to(next(network.parameters())))
    # A module used more than once cannot carry one layer's numbers.
    flow = _Flow(
        {norm: conv for norm, conv in before.items() if calls[norm] == calls[conv] == 1},
        {
            norm: tuple(names)
            for norm, names in after.items()
            if calls[norm] == 1 and all(calls[name] == 1 for name in names)
        },
    )
    return flow, _ALIVE_AT_ONCE * max(widest, 1)


def _has_fixed_statistics(module: nn.Module) -> bool:
    return isinstance(module, nn.BatchNorm2d) and module.affine and module.track_running_stats


def _ends_affine(module: nn.Module) -> bool:
    """Whether it is a layer-norm whose output is its affine map, with no activation after that."""
    return (
        isinstance(module, nn.LayerNorm)
        and isinstance(module.bias, nn.Parameter)
        and isinstance(activation_of(module), nn.Identity)
    )


def _takes_affine_input(module: nn.Module) -> bool:
    """Whether an affine map of its input channels can be a part of its weights: zero padding would not be mapped."""
    if type(module) is nn.Conv2d:
        return module.groups == 1 and module.padding in ((0, 0), 0, "valid")
    return isinstance(module, nn.Linear)


def rebuilt(module: nn.Module, replaced: dict[nn.Module, nn.Module]) -> nn.Module:
    """The same network of new module objects with some of them replaced; all tensors are shared."""
    if module not in replaced:
        renewed = copy.copy(module)
        renewed._parameters = dict(module._parameters)
        renewed._modules = {
            name: None if child is None else rebuilt(child, replaced)
            for name, child in module._modules.items()
        }
        replaced[module] = renewed
    return replaced[module]


def _with_norm_before_output(
    module: nn.Module, norm: nn.BatchNorm2d, weight: Tensor, bias: Tensor
) -> nn.Module:
    """The convolution that does what it and a batch-norm with this weight and bias do after one another."""
    assert isinstance(module, nn.Conv2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = weight * torch.rsqrt(norm.running_var + norm.eps)
    shift = bias - scale * norm.running_mean
    if module.bias is not None:
        shift = shift + scale * module.bias
    kernel = (module.weight * scale.view(-1, 1, 1, 1)).contiguous(memory_format=torch.channels_last)
    return _with_parameters(module, weight=kernel, bias=shift)


def _with_affine_input(module: nn.Module, weight: Tensor, bias: Tensor) -> nn.Module:
    """The linear layer or convolution that multiplies its input channels by `weight` and adds `bias` to them first."""
    own, shift = module.get_parameter("weight"), module._parameters["bias"]
    per_input = weight.view(1, -1, *[1] * (own.ndim - 2))
    added = (own * bias.view_as(per_input)).flatten(1).sum(dim=1)
    kernel = own * per_input
    if own.ndim == 4:
        kernel = kernel.contiguous(memory_format=torch.channels_last)
    return _with_parameters(module, weight=kernel, bias=added if shift is None else shift + added)


def _with_parameters(module: nn.Module, **tensors: Tensor | None) -> nn.Module:
    """A module of its own class (timm pads in subclasses) with these parameters."""
    changed = copy.copy(module)
    changed._parameters = {
        name: None if tensor is None else nn.Parameter(tensor, requires_grad=False)
        for name, tensor in tensors.items()
    }
    return changed


def activation_of(norm: nn.Module) -> nn.Module:
    """Return the activation that timm joins with a norm in one module, which has to stay."""
    activation = getattr(norm, "act", None)
    return activation if isinstance(activation, nn.Module) else nn.Identity()
