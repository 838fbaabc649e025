"""How a process that computes is set up: every command, every worker process of one, and programs that call it."""

from __future__ import annotations

import ctypes
import mmap
import platform
from pathlib import Path

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""glibc's numbers of its settings, from malloc.h."""

MOST_SPARE = 1 << 30
"""Bytes that a process may grow by before it gives freed memory back."""

_STATM = Path("/proc/self/statm")
_resident_then = 0
"""Bytes held after freed memory was last given back."""


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
    """Let malloc keep what is freed for the next tensor of that size; says whether it could be told (glibc only).

    As it comes, glibc gives the memory of large tensors back at once, and the next batch pays for every page anew:
    a network of small convolutions spends more time on that than on its arithmetic. The process then holds what it
    once needed until it ends, or until `release_spare_memory`.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    never = -1
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, never), (_M_TOP_PAD, 1 << 26))
    told = [mallopt(which, value) == 1 for which, value in settings]
    return all(told)


def release_spare_memory(most: int = MOST_SPARE) -> bool:
    """Give freed memory back if the process has grown by more than `most` bytes since it last did; says whether it did.

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
