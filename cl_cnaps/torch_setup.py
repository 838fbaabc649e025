"""The process that computes: how commands, their workers and programs that call them are set up, and its memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from pathlib import Path

from cl_cnaps.errors import BadInputError

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""glibc's numbers of its settings, from malloc.h."""

MOST_SPARE = 1 << 30
"""Bytes that a process may grow by before it gives freed memory back."""

_SMALL = 2**26  # bytes that are always there
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")
_resident_then = 0
"""Bytes held after freed memory was last given back."""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_up_torch(threads: int | None = None) -> None:
    """Make this process as fast as the commands are: call it once, before anything is computed.

    Denormal numbers are flushed to zero: overconfident tasks are full of them, and they are many times slower than
    others. Memory that is freed is kept for the next batch, see `keep_freed_memory`.

    Args:
        threads: how many PyTorch uses; as many as it chooses if not given.
    """
    import torch

    torch.set_flush_denormal(True)
    keep_freed_memory()
    if threads is not None:
        torch.set_num_threads(threads)


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed for the next tensor of that size; return whether it took the setting (glibc only).

    As it comes, glibc gives the memory of large tensors back at once, and the next batch pays for every page anew:
    a network of small convolutions spends more time on that than on its arithmetic. The process then holds what it
    once needed until it ends, or until `release_spare_memory`.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    never = -1
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, never), (_M_TOP_PAD, 1 << 26))
    taken = [mallopt(which, value) == 1 for which, value in settings]
    return all(taken)


def release_spare_memory(most: int = MOST_SPARE) -> bool:
    """Give freed memory back if the process has grown by more than `most` bytes since it last did; return if it did.

    For the end of a task: one large task must not hold its memory through a thousand small ones. Linux with glibc only.
    """
    global _resident_then  # noqa: PLW0603 - memory is the process's
    if platform.libc_ver()[0] != "glibc" or _resident() <= _resident_then + most:
        return False
    ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
    _resident_then = _resident()
    return True


def _resident() -> int:
    """Bytes of memory that the process holds; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def check_memory(needed: int, what: str) -> None:
    """Refuse work that takes more bytes than can be had; `what` names it, and what would make it smaller."""
    if needed <= _SMALL:
        return
    free = free_memory()
    if free is not None and needed > free:
        raise BadInputError(
            f"{what} takes {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are free"
        )


def free_memory() -> int | None:
    """Return the bytes that can be had without swapping, under the limit of a container; None if not known."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, ValueError, KeyError):
        pass
    try:
        limit, used = (int((_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        found.append(max(0, limit - used))
    except (OSError, ValueError):  # no such limit
        pass
    return min(found, default=None)
