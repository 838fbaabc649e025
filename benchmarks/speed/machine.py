"""How busy the machine is while something is measured, so that nobody takes a loaded machine's number for its own."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

_LOOK_SECONDS = 1.0
_MUCH = 0.5
"""Share of a core from which on another process disturbs."""


def load() -> dict[str, Any]:
    """Load average, this process's niceness, and the share of a core that each busy process of others takes."""
    others = _busy_others()
    return {
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "cores": os.cpu_count(),
        "nice": os.nice(0) if hasattr(os, "nice") else None,
        "other_processes": len(others),
        "cores_taken_by_others": round(sum(others), 2),
    }


def warnings_about(state: dict[str, Any]) -> list[str]:
    """What makes numbers measured now doubtful, in sentences."""
    said = []
    if state["other_processes"]:
        said.append(
            f"{state['other_processes']} other processes take {state['cores_taken_by_others']} of "
            f"{state['cores']} cores: ratios are interleaved and suffer less than times, but take neither as final"
        )
    if state["nice"]:
        said.append(f"this process runs at niceness {state['nice']}: any other process goes before it")
    return said


def peak_bytes() -> int:
    """Most memory that this process had. Linux counts what its parent had as its own in `ru_maxrss`, so not there."""
    status = Path("/proc/self/status")
    if status.is_file():
        (peak,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return 1024 * int(peak.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _busy_others() -> list[float]:
    """Cores taken by each process that is not this one and takes much of one; none where /proc does not tell."""
    before = _ticks()
    if not before:
        return []
    time.sleep(_LOOK_SECONDS)
    per_second = os.sysconf("SC_CLK_TCK") * _LOOK_SECONDS
    shares = [(after - before.get(process, after)) / per_second for process, after in _ticks().items()]
    return [share for share in shares if share >= _MUCH]


def _ticks() -> dict[int, int]:
    """Processor time of every other process so far."""
    ticks = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        process = int(file.parent.name)
        try:
            fields = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if process != os.getpid():
            ticks[process] = int(fields[11]) + int(fields[12])
    return ticks
