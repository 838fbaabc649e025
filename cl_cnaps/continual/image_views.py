"""The same images in another domain: pixels permuted, or turned."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.data import Source

PERMUTED_PIXELS = 28
"""Side at which pixels change places: MNIST's own."""


@dataclass(frozen=True)
class Permuted:
    """Pixels in a random order, the same for all images; seed 0 leaves them as they are."""

    seed: int

    def __call__(self, source: Source, split: str, class_name: str, indices: list[int], size: int) -> Tensor:
        """Permute at 28 x 28 pixels, then enlarge."""
        images = source.images(split, class_name, indices, PERMUTED_PIXELS)
        if self.seed:
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.randperm(PERMUTED_PIXELS**2, generator=generator)
            images = images.flatten(2)[:, :, order].view_as(images)
        return resized(images, size)


@dataclass(frozen=True)
class Rotated:
    """Images turned by an angle in degrees, against the clock; corners that were outside are black."""

    degrees: float

    def __call__(self, source: Source, split: str, class_name: str, indices: list[int], size: int) -> Tensor:
        """Turn at the size asked for."""
        images = source.images(split, class_name, indices, size)
        if self.degrees == 0 or len(images) == 0:
            return images
        turn = torch.deg2rad(torch.tensor(float(self.degrees)))
        cos, sin = torch.cos(turn), torch.sin(turn)
        zero = torch.zeros(())
        matrix = torch.stack([torch.stack([cos, -sin, zero]), torch.stack([sin, cos, zero])])
        grid = F.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        turned = F.grid_sample(images.float(), grid, mode="bilinear", align_corners=False)
        return turned.round().clamp(0, 255).to(torch.uint8)


def resized(images: Tensor, size: int) -> Tensor:
    """Return uint8 images with another side."""
    if images.shape[-1] == size or len(images) == 0:
        return images if len(images) else images.new_zeros(0, 3, size, size)
    found = F.interpolate(
        images.float(), size=(size, size), mode="bilinear", antialias=True, align_corners=False
    )
    return found.round().clamp(0, 255).to(torch.uint8)
