"""Changes to all images of a task alike, so that a model meets more kinds of images than it has data sets."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from cl_cnaps.episodes.episode import EpisodeBatch, Purpose, episode_generator
from cl_cnaps.training.recipe import Augmentation


def augmented(
    batch: EpisodeBatch, augmentation: Augmentation, seed: int, index: int, *, grey: bool = False
) -> EpisodeBatch:
    """Return the task as training sees it, a function of the task and of (seed, index).

    `grey`: whether its source has grey images, which may also be inverted and turned.
    """
    rng = episode_generator(seed, index, Purpose.AUGMENTATION)
    # All are drawn whatever the shares are, so that setting one leaves the others' draws as they were.
    low, inverted, colourless, turned = rng.random(4)
    turns = int(rng.integers(1, 4))

    def change(images: Tensor) -> Tensor:
        if low < augmentation.low_resolution_share:
            images = _resized(images, augmentation.low_resolution)
        if grey and inverted < augmentation.invert_share:
            images = 255 - images
        if colourless < augmentation.grey_share:
            images = _grey(images)
        if grey and turned < augmentation.rotate_share:
            images = torch.rot90(images, turns, (2, 3)).contiguous()
        return images

    return replace(
        batch, support_images=change(batch.support_images), query_images=change(batch.query_images)
    )


def _resized(images: Tensor, size: int) -> Tensor:
    """Smaller; the model enlarges what it is given to its own input size."""
    small = nn.functional.interpolate(
        images.float(), (size, size), mode="bilinear", antialias=True, align_corners=False
    )
    return small.round_().clamp_(0, 255).to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    grey = (images.float() * weights).sum(dim=1, keepdim=True)
    return grey.round_().clamp_(0, 255).to(torch.uint8).expand(-1, 3, -1, -1).contiguous()
