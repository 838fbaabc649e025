"""Items of a data set one after the other, loaded ahead by other processes if asked."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

T = TypeVar("T")


def one_by_one(data: Dataset[T], indices: list[int], workers: int) -> Iterator[T]:
    """The items at these indices, in order; whatever `workers` is, they are the same."""
    loader: DataLoader[T] = DataLoader(
        data,
        batch_size=None,
        sampler=indices,
        num_workers=workers,
        collate_fn=_unchanged,
        worker_init_fn=_leave_signals_to_the_parent,
        # Forking a process that has computed with several threads can hang.
        generator=torch.Generator(),  # the loader draws a number nobody uses; not from the global one
        multiprocessing_context="spawn" if workers else None,
    )
    return iter(loader)


def _unchanged(item: T) -> T:
    return item


def _leave_signals_to_the_parent(_worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
