"""Local workers: each may die, alone; none outlives the sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeps.works import act, task

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.sweeps.engines import Failure, LocalEngine, Reply


def gone(pid: int, seconds: float = 20) -> bool:
    """Whether a process is no more, or at most an entry that nobody has collected, within some time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def pids(file: Path) -> list[int]:
    """What a lingering task wrote, once it has."""
    until = time.monotonic() + 100
    while not (file.exists() and len(file.read_text().split()) == 2):
        assert time.monotonic() < until, "the task has not begun"
        time.sleep(0.05)
    return [int(word) for word in file.read_text().split()]


def test_failures_and_deaths_cost_their_own_task_only() -> None:
    with LocalEngine(act, 2, 3) as engine:
        engine.submit(0, task("die"))
        engine.submit(1, task("fail"))
        with pytest.raises(ClCnapsError, match="all 2 workers are busy"):
            engine.submit(2, task("well"))
        answers = dict(engine.wait() for _ in range(2))
        engine.submit(2, task("well"))
        engine.submit(3, task("threads"))
        answers |= dict(engine.wait() for _ in range(2))
    death, failure = answers[0], answers[1]
    assert isinstance(death, Failure)
    assert death.reason == "the worker process was ended by SIGKILL, perhaps for lack of memory"
    assert "last words" in death.details
    assert isinstance(failure, Failure)
    assert failure.reason == "ValueError: it was asked to fail"
    assert "Traceback" in failure.details
    assert "works.py" in failure.details
    assert isinstance(answers[2], Reply)
    assert answers[3] == Reply("3", "made")
    assert os.environ.get("OMP_NUM_THREADS") != "3"


def test_leaving_stops_workers_and_what_they_started(tmp_path: Path) -> None:
    with LocalEngine(act, 1, 1) as engine:
        engine.submit(0, task("linger", str(tmp_path / "pids")))
        started = pids(tmp_path / "pids")
    assert all(gone(pid) for pid in started)


def test_nothing_outlives_a_sweep_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys; from sweeps.works import act, task; from cl_cnaps.sweeps.engines import LocalEngine\n"
        "if __name__ == '__main__':\n"
        "    with LocalEngine(act, 1, 1) as engine:\n"
        "        engine.submit(0, task('linger', sys.argv[1])); engine.wait()\n"
    )
    (tmp_path / "sweep.py").write_text(script)
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "sweep.py"), str(tmp_path / "pids")],
        env={**os.environ, "PYTHONPATH": path},
    )
    started = pids(tmp_path / "pids")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(gone(pid) for pid in started)


def test_no_workers_or_threads() -> None:
    with pytest.raises(BadInputError, match="at least 1 of each"):
        LocalEngine(act, 0, 1)
    with pytest.raises(BadInputError, match="at least 1 of each"):
        LocalEngine(act, 1, 0)
    with LocalEngine(act, 1, 1) as engine, pytest.raises(ClCnapsError, match="no task is under way"):
        engine.wait()
