"""Processes that work for another, and end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from few_shot.coloured import three_ticks
from models.small import small_model

from cl_cnaps.few_shot.workers import Workers

PROGRAM = """
import os
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, make_model

def number(model, unit):
    return os.getpid()

if __name__ == "__main__":
    model = make_model(CnapsConfig.for_backbone("simple", "resnet18"), load_backbone("resnet18", weights="random"))
    with Workers(model, 1) as workers:
        print(next(iter(workers.each(number, [0]))), flush=True)
        input()
"""


@pytest.mark.slow  # two processes that import PyTorch
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for a process in /proc")
@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGKILL])
def test_workers_of_a_killed_process_end(tmp_path: Path, signal_: signal.Signals) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        worker = Path("/proc", process.stdout.readline().strip())
        assert worker.name.isdigit()
        assert worker.exists()
        os.kill(process.pid, signal_)
        process.wait(60)
    until = time.monotonic() + 20
    while worker.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not worker.exists()


@pytest.mark.parametrize("count", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_ticks_are_counted(count: int) -> None:
    seen: list[int] = []
    with Workers(small_model("simple"), count) as workers:
        assert list(workers.each(three_ticks, [4, 5], seen.append)) == [4, 5]
    assert sum(seen) == 6
