"""Looks: changes that turn a task of one source into one of a domain that no source is of.

A handful of sources teaches a task encoder a handful of domains, and what it generates for others is a guess. All
images of a task are changed alike, so that the task stays one to be solved; only where patches are cut, and each
image's noise, differ.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from numpy.random import Generator
from torch import Tensor

Look = Callable[[Tensor], Tensor]
"""Float images N x 3 x H x W of 0 to 255 as they are to be seen; numbers outside are cut off later."""

_SHARES = (0.299, 0.587, 0.114)


def brightness(images: Tensor) -> Tensor:
    """Return the brightness of float images, N x 1 x H x W."""
    return (images * torch.tensor(_SHARES).view(1, 3, 1, 1)).sum(dim=1, keepdim=True)


def _generator(rng: Generator) -> torch.Generator:
    """Of numbers for each image, which go on from the support set to the query set."""
    return torch.Generator().manual_seed(int(rng.integers(2**31)))


def _patches(rng: Generator) -> Look:
    """A part of each image, as of a texture; where it is cut differs from image to image."""
    share = rng.uniform(0.35, 0.7)
    generator = _generator(rng)

    def look(images: Tensor) -> Tensor:
        count, _, height, width = images.shape
        rows, columns = (max(1, round(share * side)) for side in (height, width))
        tops = torch.randint(height - rows + 1, (count,), generator=generator).tolist()
        lefts = torch.randint(width - columns + 1, (count,), generator=generator).tolist()
        corners = zip(images, tops, lefts, strict=True)
        return torch.stack(
            [image[:, top : top + rows, left : left + columns] for image, top, left in corners]
        )

    return look


def _noise(rng: Generator) -> Look:
    deviation = rng.uniform(10, 60)
    generator = _generator(rng)
    return lambda images: images + deviation * torch.randn(images.shape, generator=generator)


def _contrast(rng: Generator) -> Look:
    """Dark, pale or both: all brightness in a part of the scale."""
    span = rng.uniform(0.15, 0.7)
    lowest = rng.uniform(0, 255 * (1 - span))
    return lambda images: lowest + span * images


def _colours(rng: Generator) -> Look:
    """Each colour a mixture of all three, in other shares."""
    shares = torch.from_numpy(rng.dirichlet([0.5] * 3, 3)).float()
    return lambda images: torch.einsum("ij,njhw->nihw", shares, images)


def _ink_and_paper(rng: Generator) -> Look:
    """Two colours instead of black and white."""
    colours = torch.from_numpy(rng.uniform(0, 255, (2, 3))).float().view(2, 3, 1, 1)
    return lambda images: torch.lerp(colours[0], colours[1], brightness(images) / 255)


def _negative(_rng: Generator) -> Look:
    return lambda images: 255 - images


def _edges(_rng: Generator) -> Look:
    """How fast brightness changes, as of a drawing."""

    def look(images: Tensor) -> Tensor:
        vertical, horizontal = torch.gradient(brightness(images), dim=(2, 3))
        return (4 * torch.hypot(vertical, horizontal)).expand(-1, 3, -1, -1)

    return look


def _levels(rng: Generator) -> Look:
    """A few levels of brightness, as of a poster."""
    step = 255 / int(rng.integers(1, 5))
    return lambda images: (images / step).round() * step


def _turned(rng: Generator) -> Look:
    turns = int(rng.integers(1, 4))
    return lambda images: torch.rot90(images, turns, (2, 3))


_OF_PHOTOGRAPHS = (_patches, _noise, _contrast, _colours, _negative, _edges, _levels, _turned)
_OF_DRAWINGS = (_noise, _contrast, _ink_and_paper, _edges)
"""Of images of a grey source; inverting and turning have shares of their own."""


def draw_look(rng: Generator, *, drawings: bool) -> Look:
    """Draw one look, and how strong it is."""
    kinds = _OF_DRAWINGS if drawings else _OF_PHOTOGRAPHS
    return kinds[int(rng.integers(len(kinds)))](rng)


def looked_at(images: Tensor, look: Look) -> Tensor:
    """Return uint8 images under a look."""
    return look(images.float()).round().clamp(0, 255).to(torch.uint8).contiguous()
