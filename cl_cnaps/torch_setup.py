"""How a process that computes is set up: every command, and every worker process of one."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""glibc's numbers of its settings, from malloc.h."""


def set_up_torch() -> None:
    """Flush denormal numbers to zero, and keep memory that is freed.

    Overconfident tasks are full of denormals, which are many times slower than other numbers.
    """
    import torch

    torch.set_flush_denormal(True)
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed for the next tensor of that size; says whether it could be told (glibc only).

    As it comes, glibc gives the memory of large tensors back at once, and the next batch pays for every page anew:
    a network of small convolutions spends more time on that than on its arithmetic. The process then holds what it
    once needed until it ends.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    never = -1
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, never), (_M_TOP_PAD, 1 << 26))
    told = [mallopt(which, value) == 1 for which, value in settings]
    return all(told)
