"""Who computes the runs of a sweep: processes of this machine, or a Ray cluster.

A process pool of the standard library is lost as a whole when one of its processes is killed, for lack of memory
say; here the task of that process fails and another process replaces it. Every worker leads a process group of
its own: an interrupt from the terminal reaches the sweep alone, which then stops the workers and all they started.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.processes import end_with_parent, interrupts_wait, take_interrupts


@dataclass(frozen=True)
class Task:
    """One run, as it travels to a worker."""

    verb: str
    arguments: tuple[str, ...]
    """Of the verb's command line."""
    threads: int
    out: str | None
    """The folder of records, or None where the worker cannot write to it and must send the record back."""
    have: frozenset[str]
    """Records that are there already, as verb/name/id."""
    look_only: bool = False
    """Find out which record the run would make, and no more."""
    keep: str | None = None
    """The folder where features are kept and found."""


@dataclass(frozen=True)
class Reply:
    """A task that was done."""

    record: str
    """As verb/name/id."""
    status: Literal["found", "made", "absent"]
    """Found among those that are there, made now, or (when only looked for) not there."""
    seconds: float = 0.0
    files: Mapping[str, bytes] | None = None
    """The record's files, where the worker could not write to the folder of records."""
    others: tuple[tuple[str, Mapping[str, bytes] | None], ...] = ()
    """Further records of a run with several models or encodings, with their files where they were sent."""


@dataclass(frozen=True)
class Failure:
    """A task that was not done."""

    reason: str
    """One line."""
    details: str
    """The traceback, or what is known of a process that is no more."""


Work = Callable[[Task], Reply]
"""Does a task; importable by name, since it is sent to other processes."""


class Engine(Protocol):
    """Workers for a sweep, in a `with` statement: leaving it stops whatever still runs."""

    room: int | None
    """How many tasks may be under way at a time; None for any number."""
    shared_folder: bool
    """Whether workers write to the same folders as this process."""

    def __enter__(self) -> Engine: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def submit(self, number: int, task: Task) -> None:
        """Start a task, which is called `number`."""

    def wait(self) -> tuple[int, Reply | Failure]:
        """Block until some task ends."""


def attempt(work: Work, task: Task) -> Reply | Failure:
    """Do a task in this process; an exception becomes text, which travels where its type might not."""
    try:
        return work(task)
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> Failure:
    """An exception in words."""
    message = str(error).strip()
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return Failure(reason.splitlines()[0], "".join(traceback.format_exception(error)))


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
            raise BadInputError(f"{workers} workers with {threads} threads: at least 1 of each is needed")
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
            # A reply sent before the process died counts: `poll` first, whatever the state of the sentinel.
            answer = worker.connection.recv() if worker.connection.poll() else self._remove_dead(worker)
        except (EOFError, OSError):
            answer = self._remove_dead(worker)
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

    def _remove_dead(self, worker: _Worker) -> Failure:
        """Take a dead worker off the list and return how it died."""
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
        lines = worker.output.read_text(errors="replace").splitlines() if worker.output.exists() else []
        reason = f"the worker process was ended {how}"
        return Failure(reason, "\n".join([reason, *lines[-_TAIL:]]))


def _serve(connection: Connection, work: Work, output: str) -> None:
    """Do one task after another, until the sweep closes the connection."""
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


class RayEngine:
    """The nodes of a cluster that runs already.

    A node need not share a file system with this machine: records come back as a task's result. A task that is lost
    with its process or node fails like any other; Ray's own retries are off, so that a sweep's rule is the only one.
    """

    shared_folder = False

    def __init__(
        self, work: Work, address: str | None, workers: int | None, threads: int, gpus: float = 0.0
    ) -> None:
        self.room = workers
        self._work = work
        self._address = address
        self._resources = {"num_cpus": threads, "num_gpus": gpus}
        self._ray: Any = None
        self._task: Any = None
        self._numbers: dict[Any, int] = {}

    def __enter__(self) -> RayEngine:
        try:
            import ray
        except ImportError:
            raise ClCnapsError(
                'the engine ray needs the package ray: pip install "cl-cnaps[ray]", or pip install ray'
            ) from None
        try:
            _check_address(self._address)
            ray.init(address=self._address or "auto", log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            where = f"at {self._address}" if self._address else "on this machine"
            raise ClCnapsError(
                f"there is no Ray cluster {where} ({str(error).splitlines()[0]}); `ray start --head` starts one, "
                "--address names another"
            ) from None
        self._ray = ray
        self._task = self._ray.remote(max_retries=0, **self._resources)(attempt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reference in self._numbers:
            with contextlib.suppress(Exception):  # whatever is not there any more need not be cancelled
                self._ray.cancel(reference, force=True)
        self._numbers.clear()
        self._ray.shutdown()

    def submit(self, number: int, task: Task) -> None:
        """Hand a task to the cluster, which queues what it has no room for."""
        self._numbers[self._task.remote(self._work, task)] = number

    def wait(self) -> tuple[int, Reply | Failure]:
        """Block until some task ends, or is lost."""
        (reference,), _ = self._ray.wait(list(self._numbers), num_returns=1)
        number = self._numbers.pop(reference)
        try:
            answer: Reply | Failure = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            reason = f"the task was lost on the cluster ({type(error).__name__})"
            answer = Failure(reason, f"{reason}\n{error}")
        return number, answer


def _check_address(address: str | None) -> None:
    """Refuse an address where nobody listens at once; Ray would go on trying for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
