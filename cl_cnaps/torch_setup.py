"""How a process that computes is set up: every command, and every worker process of one."""

from __future__ import annotations

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""glibc's numbers of its settings, from malloc.h."""

MOST_SPARE = 1 << 30
"""Bytes of freed memory that a process keeps from one task to the next."""


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
    once needed until it ends, or until `release_spare_memory`.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    never = -1
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, never), (_M_TOP_PAD, 1 << 26))
    told = [mallopt(which, value) == 1 for which, value in settings]
    return all(told)


class _MallocState(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def release_spare_memory(most: int = MOST_SPARE) -> bool:
    """Give freed memory back if more than `most` bytes of it are kept; says whether it did (glibc only).

    For the end of a task: one large task must not hold its memory through a thousand small ones.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):  # before glibc 2.33
        return False
    library.mallinfo2.restype = _MallocState
    if library.mallinfo2().fordblks <= most:
        return False
    return bool(library.malloc_trim(ctypes.c_size_t(0)))
