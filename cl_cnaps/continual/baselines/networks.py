"""The networks that the network baselines train. None has batch norm: running statistics would forget by themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_cnaps.continual.baselines.inputs import COLOUR_PIXELS, GREY_PIXELS


class FeatureHead(nn.Module):
    """One hidden layer on frozen features.

    Not a linear layer: there the classes of different tasks share no weight, so with a loss over the classes
    present there is nothing to forget and every regulariser is bit-equal to naive fine-tuning. Features are
    standardised per image, so that the learning rate suits any backbone.
    """

    def __init__(self, n_features: int, n_classes: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, hidden)
        self.output = nn.Linear(hidden, n_classes)

    def forward(self, features_ND: Tensor) -> Tensor:
        """Logits, N x classes."""
        standardised = F.layer_norm(features_ND, features_ND.shape[1:])
        logits: Tensor = self.output(torch.relu(self.hidden(standardised)))
        return logits


class Mlp(nn.Module):
    """Two hidden layers on 28-pixel grey-scale images: the network of the split-MNIST literature (VCL's, with 256)."""

    def __init__(self, n_classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(GREY_PIXELS * GREY_PIXELS, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits, N x classes, of uint8 images N x 1 x 28 x 28."""
        logits: Tensor = self.layers(images.float() / 255)
        return logits


class Cnn(nn.Module):
    """Three times [3x3 convolution, ReLU, max-pool] and a hidden layer, on 32-pixel colour images.

    With channels last, in which a training step takes two thirds of the time on a CPU; the same to rounding.
    """

    def __init__(self, n_classes: int, hidden: int) -> None:
        super().__init__()
        side = COLOUR_PIXELS // 8
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_classes),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Logits, N x classes, of uint8 images N x 3 x 32 x 32."""
        scaled = images.float() / 127.5 - 1
        logits: Tensor = self.layers(scaled.contiguous(memory_format=torch.channels_last))
        return logits
