"""The processes of a training: those that share one model, those that load data, and signals.

The first are started by torchrun, which sets RANK, LOCAL_RANK and WORLD_SIZE; without those there is one process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.loading import resolve_device
from cl_cnaps.processes import end_with_parent, interrupts_wait

_TIMEOUT = timedelta(hours=12)
"""One process may pack images or validate a large task while the others wait."""

GATHERED = 8
"""Most processes whose tensors are gathered in each to be added up."""


class Ranks:
    """The processes of this training; `with Ranks.join(...) as ranks` leaves the group at the end."""

    def __init__(self, rank: int, world: int, local_rank: int, device: torch.device) -> None:
        self.rank = rank
        self.world = world
        self.local_rank = local_rank
        self.device = device

    @classmethod
    def join(cls, device: str = "auto") -> Ranks:
        """Join as torchrun's environment variables name rank and world; GPUs are dealt out by the local rank."""
        rank, local_rank, world = (
            int(os.environ.get(name, fallback))
            for name, fallback in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))
        )
        target = resolve_device(device)
        if world > 1 and target.type == "cuda" and target.index is None:
            target = torch.device("cuda", local_rank)
        if target.type == "cuda":
            torch.cuda.set_device(target)
        if world > 1:
            dist.init_process_group("nccl" if target.type == "cuda" else "gloo", timeout=_TIMEOUT)
        return cls(rank, world, local_rank, target)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error others may be waiting for this process: leaving would wait for them.
        if self.world > 1 and kind is None:
            self.wait()  # all leave together: nobody's connection is closed while another still reads from it
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes: the same bits in each process.

        Of few processes it is added up in the order of their ranks, as one process would; what each then receives
        grows with their number, so that more of them let the back end add up.
        """
        if self.world == 1:
            return tensor
        here = tensor.to(self.device)
        if self.world > GATHERED:
            here = here.clone()
            dist.all_reduce(here)
            return here.to(tensor.device)
        gathered = [torch.empty_like(here) for _ in range(self.world)]
        dist.all_gather(gathered, here)
        total = gathered[0]
        for other in gathered[1:]:
            total += other
        return total.to(tensor.device)

    def sum_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace each gradient by its sum over all processes; one that is None here counts as zero."""
        if self.world == 1:
            return
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        summed = self.sum(torch.cat([part.flatten() for part in parts]))
        for parameter, part in zip(
            parameters, torch.split(summed, [p.numel() for p in parameters]), strict=True
        ):
            parameter.grad = part.view_as(parameter).clone()

    def share(self, content: bytes | None) -> bytes:
        """The first process's bytes, in all processes."""
        if self.world == 1:
            assert content is not None
            return content
        size = torch.tensor([len(content or b"")], device=self.device)
        dist.broadcast(size, 0)
        data = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.first:
            data = torch.frombuffer(bytearray(content or b""), dtype=torch.uint8).to(self.device)
        if len(data):
            dist.broadcast(data, 0)
        return bytes(data.cpu().numpy().tobytes())

    def wait(self) -> None:
        """Until all processes are here."""
        self.sum(torch.zeros(1))


T = TypeVar("T")


def one_by_one(data: Dataset[T], indices: Iterable[int], workers: int) -> Iterator[T]:
    """The items at these indices, in order, which may be a great many; whatever `workers` is, they are the same."""
    loader: DataLoader[T] = DataLoader(
        data,
        batch_size=None,
        sampler=indices,
        num_workers=workers,
        collate_fn=_unchanged,
        worker_init_fn=_start,
        generator=torch.Generator(),  # the loader draws a number nobody uses; not from the global one
        # Forking a process that has computed with several threads can hang.
        multiprocessing_context="spawn" if workers else None,
    )
    with interrupts_wait():
        return iter(loader)


def _unchanged(item: T) -> T:
    return item


def _start(_number: int) -> None:
    end_with_parent()


@contextmanager
def lost_workers() -> Iterator[None]:
    """Name the cure when a process that loads data was killed, which PyTorch reports at any point of the block."""
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise ClCnapsError(
            "a worker process ended unexpectedly, perhaps for lack of memory; try fewer with --workers, and --resume "
            "to continue from the last checkpoint"
        ) from error


_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPATIENT = 3.0
"""Seconds after which another SIGINT is a person's second one; launchers pass on the first one twice."""


class Interruption:
    """Inside the block signals are noted only; a SIGINT some seconds after the first raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._previous: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Interruption:
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Whether a signal to stop came."""
        return self._first is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif number == signal.SIGINT and now - self._first > _IMPATIENT:
            raise KeyboardInterrupt
