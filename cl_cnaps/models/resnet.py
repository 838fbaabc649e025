"""The ResNet-18 of the CNAPS family.

He et al. 2016, as varied by the authors of CNAPS for 84 x 84 images: a 5 x 5 stem with stride 2 and padding 1, no
max-pooling, no fully connected layer. Parameter names are those of the usual ResNet, so that released weights load.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
    """Images (N x 3 x 84 x 84, normalised) to features (N x 512)."""

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
