"""How soon commands start, each a process of its own, in turns with importing what it cannot do without."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import ratio, turns
from cl_cnaps.errors import ClCnapsError

REPEATS = 3
_STREAM_S_BAR = b"simple first"
_COMMAND = "from cl_cnaps.commands.main import main; main()"


def measure(quick: bool) -> Iterator[Figure]:
    """Help, the first line of progress, and the import of the package."""
    forms: dict[str, Callable[[], object]] = {
        "python": lambda: _run("-c", "pass"),
        "import torch": lambda: _run("-c", "import torch"),
        "help": lambda: _run("-c", _COMMAND, "--help"),
        # The first import lets torchvision be imported beside a PyTorch without CUDA, and imports nothing else.
        "imports": lambda: _run("-c", "import cl_cnaps, torch, torchvision, avalanche"),
        "stream": _first_line,
        "import cl_cnaps": lambda: _run("-c", "import cl_cnaps"),
    }
    taken = turns(forms, 1 if quick else REPEATS)  # the first round fills the file cache
    shown = {name: [round(one, 3) for one in spent] for name, spent in taken.items()}
    for what, over, under, bar in (
        ("`cl-cnaps --help`, to `import torch`", "help", "import torch", 0.5),
        (
            "first progress of `cl-cnaps stream`, to importing torch, torchvision and avalanche",
            "stream",
            "imports",
            1.3,
        ),
    ):
        value, spread = ratio(taken[over], taken[under])
        details = {**spread, "seconds": {name: shown[name] for name in (over, under)}}
        yield Figure("start", what, value, bar=bar, at_least=False, details=details)
    alone = sorted(a - b for a, b in zip(taken["import cl_cnaps"], taken["python"], strict=True))
    yield Figure(
        "start",
        "`import cl_cnaps`, beside the start of Python",
        round(alone[len(alone) // 2], 3),
        "s",
        bar=0.2,
        at_least=False,
        details={
            "spread": [round(alone[0], 3), round(alone[-1], 3)],
            "seconds": {name: shown[name] for name in ("python", "import cl_cnaps")},
        },
    )


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, "-W", "ignore", *arguments], check=True, capture_output=True)


def _first_line() -> None:
    """Wait until a terminal shows the bar of the stream, all having been opened and loaded; then end the process."""
    here, there = pty.openpty()
    shown = b""
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-start-") as out:
        command = [sys.executable, "-W", "ignore", "-c", _COMMAND, "stream", "--runs", "1", "--out", out]
        with subprocess.Popen(command, stderr=there, stdout=subprocess.DEVNULL) as process:
            os.close(there)
            with contextlib.suppress(OSError):  # the process ended, and the terminal with it
                while _STREAM_S_BAR not in shown:
                    shown += os.read(here, 4096)
            process.kill()
        os.close(here)
    if _STREAM_S_BAR not in shown:
        raise ClCnapsError(f"`cl-cnaps stream` ended without a bar: {shown[-200:]!r}")
