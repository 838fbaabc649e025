"""Tasks on a Ray cluster. Ray is imported here only, and only when it is asked for."""

from __future__ import annotations

import contextlib
import logging
import socket
from types import TracebackType
from typing import Any

from cl_cnaps.errors import ClCnapsError
from cl_cnaps.sweeps.engine import Failure, Reply, Task, Work, attempt


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
            _knock(self._address)
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


def _knock(address: str | None) -> None:
    """Refuse an address where nobody listens at once; Ray would go on trying for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdigit() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
