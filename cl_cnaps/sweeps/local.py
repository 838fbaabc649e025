"""Tasks in processes of this machine, each of which may die without harm to the others.

A process pool of the standard library is lost as a whole when one of its processes is killed, for lack of memory
say; here the task of that process fails and another process takes its place. Every worker leads a process group of
its own: an interrupt from the terminal reaches the sweep alone, which then stops the workers and all they started.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.processes import end_with_parent, interrupts_wait, take_interrupts
from cl_cnaps.sweeps.engine import Failure, Reply, Task, Work, attempt

_GRACE = 3.0
"""Seconds that interrupted workers have to tidy up."""
_TAIL = 20
"""Last lines of a dead worker's output that are kept."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    output: Path
    number: int | None = None
    """The task it is at, if any."""


class LocalEngine:
    """`workers` processes that compute with `threads` threads each; started when there is work for them."""

    shared_folder = True

    def __init__(self, work: Work, workers: int, threads: int) -> None:
        if workers < 1 or threads < 1:
            raise BadInputError(f"{workers} workers with {threads} threads were asked for; 1 is the fewest")
        self.room: int | None = workers
        self._work = work
        self._threads = threads
        self._workers: list[_Worker] = []
        self._outputs = Path()
        self._started = 0

    def __enter__(self) -> LocalEngine:
        self._outputs = Path(tempfile.mkdtemp(prefix="cl-cnaps-sweep-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.connection.close()  # an idle worker ends when it hears no more
            if worker.number is not None:
                _signal_group(worker.process, signal.SIGINT)
        until = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.process.join(max(0.0, until - time.monotonic()))
            _end(worker.process)
        self._workers.clear()
        shutil.rmtree(self._outputs, ignore_errors=True)

    def submit(self, number: int, task: Task) -> None:
        """Give a task to an idle worker, or to a new one."""
        worker = next((one for one in self._workers if one.number is None), None) or self._start()
        worker.number = number
        # If it is dead, `wait` finds out.
        with contextlib.suppress(OSError):
            worker.connection.send(task)

    def wait(self) -> tuple[int, Reply | Failure]:
        """Block until some task ends, or its process does."""
        busy = [worker for worker in self._workers if worker.number is not None]
        if not busy:
            raise ClCnapsError("no task is under way")
        ready = wait([one for worker in busy for one in (worker.connection, worker.process.sentinel)])
        worker = next(one for one in busy if one.connection in ready or one.process.sentinel in ready)
        number, worker.number = worker.number, None
        assert number is not None
        answer: Reply | Failure
        try:
            # What a process said before it died counts: `poll` first, whatever the sentinel says.
            answer = worker.connection.recv() if worker.connection.poll() else self._bury(worker)
        except (EOFError, OSError):
            answer = self._bury(worker)
        return number, answer

    def _start(self) -> _Worker:
        if self.room is not None and len(self._workers) >= self.room:
            raise ClCnapsError(f"all {self.room} workers are busy")
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        here, there = context.Pipe()
        self._started += 1
        output = self._outputs / f"{self._started}.txt"
        process = context.Process(target=_serve, args=(there, self._work, str(output)))
        with _thread_limit(self._threads), interrupts_wait():
            process.start()
        there.close()
        worker = _Worker(process, here, output)
        self._workers.append(worker)
        return worker

    def _bury(self, worker: _Worker) -> Failure:
        """Take a dead worker off the list and say how it died."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join(_GRACE)
        _end(worker.process)
        code = worker.process.exitcode
        how = f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL:
                how += ", perhaps for lack of memory"
        said = worker.output.read_text(errors="replace").splitlines() if worker.output.exists() else []
        reason = f"the worker process was ended {how}"
        return Failure(reason, "\n".join([reason, *said[-_TAIL:]]))


def _serve(connection: Connection, work: Work, output: str) -> None:
    """What a worker process does: one task after another, until the sweep closes the connection."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    with Path(output).open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    take_interrupts()  # of a group of its own they come from the sweep alone
    end_with_parent(
        group=hasattr(os, "setpgrp")
    )  # nor does anything it started outlive a sweep that was killed
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            connection.send(attempt(work, connection.recv()))
    os._exit(0)  # at once: to take libraries down may last seconds


def _signal_group(process: BaseProcess, number: signal.Signals) -> None:
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _end(process: BaseProcess) -> None:
    """Kill a process if it is still there, and whatever is left of its group."""
    _signal_group(process, signal.SIGKILL)
    if process.is_alive():  # it had not come as far as leading a group
        process.kill()
    process.join()


@contextlib.contextmanager
def _thread_limit(threads: int) -> Iterator[None]:
    """The environment in which libraries of a process that is started now take so many threads."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
