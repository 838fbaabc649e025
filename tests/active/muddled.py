"""Folders of pictures whose classes are hard to tell, so that accuracies are neither 0 nor 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def muddled_folders(root: Path, classes: int, count: int, *, spread: int = 60) -> Path:
    """`classes` folders c0, c1, ... of `count` pictures, whose colours lie around that of their class."""
    rng = np.random.default_rng(0)
    for number in range(classes):
        (root / f"c{number}").mkdir(parents=True)
        colour = np.array([70 + 40 * (number % 2), 70 + 40 * (number // 2), 90])
        for picture in range(count):
            pixels = colour + rng.integers(-spread, spread + 1, 3) + rng.integers(0, 60, (32, 32, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(root / f"c{number}" / f"{picture}.png")
    return root
