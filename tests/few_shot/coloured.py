"""Folders of pictures whose classes can be told by their colour."""

from __future__ import annotations

import colorsys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from cl_cnaps.few_shot.run import Outcome, logits_of_methods, run_methods, task_features
from cl_cnaps.few_shot.workers import Workers, tick
from cl_cnaps.models.cnaps import CnapsModel


def coloured_folders(root: Path, classes: int, count: int, *, noise: int = 40) -> Path:
    """`classes` folders c00, c01, ... of `count` pictures, one hue a class."""
    rng = np.random.default_rng(0)
    for number in range(classes):
        base = 60 + 120 * np.array(colorsys.hsv_to_rgb(number / classes, 1, 1))
        (root / f"c{number:02}").mkdir(parents=True)
        for picture in range(count):
            pixels = base + rng.normal(0, noise, (32, 32, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(root / f"c{number:02}" / f"{picture}.png")
    return root


def three_ticks(model: object, unit: int) -> int:
    """Work that ticks three times a unit."""
    for _ in range(3):
        tick()
    return unit


def run_tasks(pool: Workers, *arguments: Any, **options: Any) -> list[Outcome]:
    """Score tasks by the workers' own model."""
    return [outcome for (outcome,) in run_methods(pool, (pool.model.config,), *arguments, **options)]


def query_logits(model: CnapsModel, support: Tensor, labels: Tensor, query: Tensor, way: int) -> Tensor:
    """Logits of one task from its images."""
    support_SD, query_QD = task_features(model, support, labels, query)
    return logits_of_methods([model], support_SD, labels, query_QD, way)[0]
