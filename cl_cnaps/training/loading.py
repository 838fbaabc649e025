"""Items of a data set one after the other, loaded ahead by other processes if asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from cl_cnaps.processes import interrupts_wait

T = TypeVar("T")


def one_by_one(data: Dataset[T], indices: list[int], workers: int) -> Iterator[T]:
    """The items at these indices, in order; whatever `workers` is, they are the same."""
    loader: DataLoader[T] = DataLoader(
        data,
        batch_size=None,
        sampler=indices,
        num_workers=workers,
        collate_fn=_unchanged,
        generator=torch.Generator(),  # the loader draws a number nobody uses; not from the global one
        # Forking a process that has computed with several threads can hang.
        multiprocessing_context="spawn" if workers else None,
    )
    with interrupts_wait():
        return iter(loader)


def _unchanged(item: T) -> T:
    return item
