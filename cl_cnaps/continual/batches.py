"""What Avalanche hands out, as the models read it: images, and the task that a batch belongs to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from cl_cnaps.errors import BadInputError


def as_images(batch: Tensor) -> Tensor:
    """A batch as uint8 N x 3 x H x W, from uint8 or from floats in [0, 1], grey or RGB; features N x D stay."""
    if batch.ndim == 2 and batch.is_floating_point():
        return batch
    if batch.ndim == 3:
        batch = batch[:, None]
    if batch.ndim != 4 or batch.shape[1] not in (1, 3):
        raise BadInputError(f"expected images N x 3 x H x W (or one channel), got shape {tuple(batch.shape)}")
    if batch.is_floating_point():
        low, high = float(batch.min()), float(batch.max())
        if not (low >= 0 and high <= 1):  # so written, NaN is refused too
            raise BadInputError(
                f"expected images in [0, 1], found values from {low:.2f} to {high:.2f}: take the normalisation out of "
                "the benchmark's transforms (the model does its own)"
            )
        batch = (batch * 255).round().to(torch.uint8)
    return batch.expand(-1, 3, -1, -1)


def experience_images(experience: Any, batch_size: int) -> Tensor:
    """All images of an experience in its evaluation form; labels are not looked at."""
    batches = list(plain_loader(experience.dataset.eval(), batch_size, {}))
    if not batches:
        raise BadInputError(f"experience {experience.current_experience} has no images")
    return torch.cat([as_images(batch[0]) for batch in batches])


def plain_loader(dataset: Any, batch_size: int, options: dict[str, Any]) -> DataLoader[Any]:
    """Every image once, in the order of the data set."""
    keep = ("num_workers", "pin_memory", "persistent_workers")
    chosen = {key: options[key] for key in keep if options.get(key) is not None}
    collate: Callable[..., Any] | None = getattr(dataset, "collate_fn", None)
    return DataLoader(dataset, batch_size=batch_size, shuffle=False, collate_fn=collate, **chosen)


def task_of(experience: Any, batches: Sequence[Any]) -> int:
    """The task label of an experience's batches; 0 in a benchmark that has none."""
    if not hasattr(experience, "task_labels"):
        return 0
    tasks = torch.unique(torch.cat([batch[-1] for batch in batches])).tolist()
    if len(tasks) != 1:
        raise BadInputError(
            f"experience {experience.current_experience} has the task labels {tasks}; it must have one: make the "
            "benchmark with one task per experience, or without task labels"
        )
    return int(tasks[0])
