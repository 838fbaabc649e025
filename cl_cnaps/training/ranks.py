"""Several processes that train one model: who they are, and sums over all of them.

Started by torchrun, which sets RANK, LOCAL_RANK and WORLD_SIZE; without those there is one process.
"""

from __future__ import annotations

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from cl_cnaps.models.loading import resolve_device

_TIMEOUT = timedelta(hours=12)
"""One process may pack images or validate a large task while the others wait."""


class Ranks:
    """The processes of this training; `with Ranks.join(...) as ranks` leaves the group at the end."""

    def __init__(self, rank: int, world: int, local_rank: int, device: torch.device) -> None:
        self.rank = rank
        self.world = world
        self.local_rank = local_rank
        self.device = device

    @classmethod
    def join(cls, device: str = "auto") -> Ranks:
        """This process's place, by torchrun's environment; GPUs are dealt out by the local rank."""
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
        """The sum over all processes, added up in the order of their ranks: the same bits in each process."""
        if self.world == 1:
            return tensor
        here = tensor.to(self.device)
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
