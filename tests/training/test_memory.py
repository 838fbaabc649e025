"""What `images_at_once` is for: activations of a few images at a time, whatever the size of the task."""

from __future__ import annotations

import torch
from models.test_memory import PeakBytes

from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, make_model
from cl_cnaps.training.recipe import Optimisation
from cl_cnaps.training.step import add_gradient

MEGABYTE = 1 << 20


def peak(model: CnapsModel, images: int, at_once: int | None) -> int:
    """Most bytes of tensors alive at once in a task with so many support and as many query images."""
    labels = torch.arange(2).repeat_interleave(images // 2)
    pictures = torch.zeros(images, 3, 84, 84, dtype=torch.uint8)
    pictures[labels == 1] = 200
    task = EpisodeBatch(2, pictures, labels, pictures, labels)
    model.zero_grad()
    with PeakBytes() as use:
        add_gradient(model, task, Optimisation(tasks=1, images_at_once=at_once))
    return use.peak


def test_memory_of_a_task_in_parts() -> None:
    """On the paper's network 200 + 200 images stay under 2 GB (benchmarks/speed/metatrain.py measures the process)."""
    model = make_model(
        CnapsConfig.papers("transductive"), load_backbone("resnet18", weights="random")
    ).train()
    peak(model, 2, 1)  # what exists from the first task on does not count
    few, more, whole = peak(model, 2, 1), peak(model, 4, 1), peak(model, 4, None)
    assert more < whole
    growth = (more - few) / 4  # per image, of the 4 images more
    assert growth < 2 * MEGABYTE
    per_image_at_once = whole / 8
    assert 400 * growth + 32 * per_image_at_once < 1600 * MEGABYTE, "with room for the interpreter under 2 GB"
