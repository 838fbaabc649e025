"""Where and with what a run was made: versions, hardware, commit. No names of machines, users or folders."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import cl_cnaps

_PACKAGES = (
    "torch",
    "torchvision",
    "avalanche-lib",
    "timm",
    "numpy",
    "scikit-learn",
    "mlxtend",
    "safetensors",
)
_LAUNCHERS = {"cl-cnaps", "cli.py"}
_ELSEWHERE = {"--out", "--keep-features", "--workers"}
"""Options with a value that say where and how, not what."""
_NOT_NUMBERS = {"--resume", "--quiet", "-q", "--json", "--plots", "--no-plots"}


def describe_environment(extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what environment.json holds: the facts found here and `extra` (digests, seeds), which wins over them."""
    return {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command_line(),
        "code": code_version(),
        "python": platform.python_version(),
        "packages": {name: _installed(name) for name in _PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": {"model": cpu_model(), "cores": os.cpu_count(), "threads": _threads()},
        "gpu": _gpu(),
        **(extra or {}),
    }


def command_line(argv: list[str] | None = None) -> str | None:
    """The command that a person typed, or None when the run was started from Python.

    A file that adds something of its own and ends in the command's `main()` is typed as `python mine.py ...`.
    """
    launcher, *arguments = argv or sys.argv or [""]
    name = Path(launcher).name
    if name in _LAUNCHERS:
        return shlex.join(["cl-cnaps", *arguments])
    command = getattr(sys.modules.get("cl_cnaps.commands.main"), "main", None)
    extends = command is not None and getattr(sys.modules["__main__"], "main", None) is command
    return shlex.join(["python", name, *arguments]) if extends and name.endswith(".py") else None


def repeating(command: str) -> str:
    """The command that makes a record's numbers anew: without what takes them from a record or decides where they go.

    With `--resume`, or features that were kept, a command may return what is there and compute nothing.
    """
    kept: list[str] = []
    words = iter(shlex.split(command))
    for word in words:
        option, is_joined, _ = word.partition("=")
        if option in _ELSEWHERE:
            if not is_joined:
                next(words, None)
        elif word not in _NOT_NUMBERS:
            kept.append(word)
    return shlex.join(kept)


def code_version(package: Path | None = None) -> dict[str, Any]:
    """The version and, when run from the project's git checkout, its commit and whether files differ."""
    package = package or Path(cl_cnaps.__file__).parent
    # A virtual environment may lie inside somebody else's repository: only one that tracks this file is ours.
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return {"version": cl_cnaps.__version__, "commit": None, "dirty": None}
    changes = _git(package, "status", "--porcelain", "--", ".")
    return {
        "version": cl_cnaps.__version__,
        "commit": _git(package, "rev-parse", "HEAD"),
        "dirty": None if changes is None else bool(changes),
    }


def cpu_model() -> str:
    """The processor as its maker calls it, where the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _threads() -> int | None:
    """Threads PyTorch computes with; asked only of a PyTorch that the run has loaded."""
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else None


def _gpu() -> str | None:
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
