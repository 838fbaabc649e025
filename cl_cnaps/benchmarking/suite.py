"""All benchmarks, each in a process of its own, so that none finds what another left in memory or in caches."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cl_cnaps.benchmarking.figures import Figure, figure


@dataclass(frozen=True)
class Failure:
    """A benchmark that did not come to its end."""

    benchmark: str
    reason: str


def run_suite(
    names: Sequence[str], *, quick: bool, threads: int, before: Callable[[str], object]
) -> Iterator[Figure | Failure]:
    """Figures as they come; a benchmark that fails is told at its end and does not stop the others.

    `before` is called with the name of each benchmark while none is running.
    """
    for name in names:
        before(name)
        command = [sys.executable, "-m", "cl_cnaps.benchmarking.script", name, "--json"]
        command += ["--threads", str(threads), *(["--quick"] if quick else [])]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                for row in process.stdout:
                    yield figure(json.loads(row))
                said = process.stderr.read().strip().splitlines()
            except BaseException:
                process.kill()
                raise
        if process.returncode < 0:
            yield Failure(name, f"ended by signal {-process.returncode}")
        elif process.returncode:
            yield Failure(name, said[-1] if said else f"exit code {process.returncode}")
