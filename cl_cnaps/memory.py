"""Whether what is about to be made fits into the memory that is there."""

from __future__ import annotations

from pathlib import Path

from cl_cnaps.errors import BadInputError

_SMALL = 2**26  # bytes that are always there
_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


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
