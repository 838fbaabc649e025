"""Random crops, flips and colour jitter of single images, all drawn from one explicit generator."""

from __future__ import annotations

import torch
from numpy.random import Generator
from torch import Tensor, nn

from cl_cnaps.training.pretrain_recipe import ImageAugmentation

_GREY = (0.299, 0.587, 0.114)


def augmented_images(images: Tensor, augmentation: ImageAugmentation, rng: Generator) -> Tensor:
    """uint8 images N x 3 x S x S, each changed by its own draws."""
    padding, count = augmentation.crop_padding, len(images)
    if padding:
        images = _cropped(images, padding, torch.from_numpy(rng.integers(0, 2 * padding + 1, (count, 2))))
    if augmentation.flip:
        mirrored = torch.from_numpy(rng.random(count) < 0.5)
        images = torch.where(mirrored.view(-1, 1, 1, 1), images.flip(3), images)
    if augmentation.jitter:
        factors = rng.uniform(1 - augmentation.jitter, 1 + augmentation.jitter, (count, 3))
        images = _jittered(images, torch.from_numpy(factors).float())
    return images


def _cropped(images: Tensor, padding: int, offsets_N2: Tensor) -> Tensor:
    size = images.shape[-1]
    padded = nn.functional.pad(images.float(), [padding] * 4, mode="reflect").to(torch.uint8)
    crops = [
        padded[i, :, top : top + size, left : left + size]
        for i, (top, left) in enumerate(offsets_N2.tolist())
    ]
    return torch.stack(crops)


def _jittered(images: Tensor, factors_N3: Tensor) -> Tensor:
    """Brightness, contrast and saturation times their factors, in this order."""
    brightness, contrast, saturation = (factor.view(-1, 1, 1, 1) for factor in factors_N3.unbind(1))
    weights = torch.tensor(_GREY).view(1, 3, 1, 1)
    x = (images.float() * brightness).clamp_(0, 255)
    mean = (x * weights).sum(dim=1, keepdim=True).mean(dim=(2, 3), keepdim=True)
    x = (mean + (x - mean) * contrast).clamp_(0, 255)
    grey = (x * weights).sum(dim=1, keepdim=True)
    return (grey + (x - grey) * saturation).round_().clamp_(0, 255).to(torch.uint8)
