"""Doing many independent pieces of work in other processes, or in this one, with the same result to the last bit.

Every process computes with one thread. A sum in floating point depends on how many threads share it, so more than
one would let the number of workers into the results; and two processes with a thread each embed more images a second
than one with two.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Protocol, TypeVar

import torch

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.processes import end_with_parent, interrupts_wait
from cl_cnaps.torch_setup import release_spare_memory, set_up_torch

Unit = TypeVar("Unit", contravariant=True)
Result = TypeVar("Result", covariant=True)


_SECOND = 1.0


class Work(Protocol[Unit, Result]):
    """What is done with a model, unit by unit; pickled once for each process."""

    def __call__(self, model: CnapsModel, unit: Unit) -> Result:
        """Do one unit."""


class Workers:
    """A model in `count` other processes; with none, in this process. Use it in a `with` statement."""

    def __init__(self, model: CnapsModel, count: int) -> None:
        if count < 0:
            raise BadInputError(f"the number of workers is {count}; 0 is the fewest")
        self.model = model
        self.count = count
        self._pool: ProcessPoolExecutor | None = None
        self._works_done = 0

    def __enter__(self) -> Workers:
        if self.count:
            # Spawned, not forked: a fork of a process whose threads have computed may hang. The model travels as
            # bytes in a file that is mapped: through the pipe of a process that starts, each would start only after
            # the one before has loaded PyTorch, and Ctrl-C would wait for it.
            context = get_context("spawn")
            self._counter = context.Value("L", 0)
            self._seen = 0
            content = pickle.dumps(self.model)
            model = context.RawArray("c", len(content))
            model.raw = content
            self._pool = ProcessPoolExecutor(self.count, context, _start, (model, self._counter))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            if kind is not None:  # nobody waits for what they are at
                for process in list((self._pool._processes or {}).values()):
                    process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def each(
        self,
        work: Work[Unit, Result],
        units: Sequence[Unit],
        ticked: Callable[[int], None] = lambda _: None,
    ) -> Iterator[Result]:
        """Yield the results of `work` on every unit, in the order of the units.

        `ticked` gets how often the work has called `tick` since, about every second.
        """
        if self.count == 0:
            with one_thread():
                for unit in units:
                    _Process.ticked = lambda: ticked(1)
                    yield work(self.model, unit)
                    release_spare_memory()
            return
        if self._pool is None:
            raise ClCnapsError("workers were used outside their `with` statement")
        self._works_done += 1
        pickled = pickle.dumps(work)
        try:
            with interrupts_wait():  # processes start when work is given to them
                futures = [self._pool.submit(_do, self._works_done, pickled, unit) for unit in units]
            for future in futures:
                ended = False
                while not ended:
                    ended = bool(wait([future], timeout=_SECOND).done)
                    if ticks := self._ticks():
                        ticked(ticks)
                yield future.result()
        except BrokenProcessPool as error:
            raise ClCnapsError(
                f"one of {self.count} worker processes ended unexpectedly, perhaps for lack of memory; "
                f"try fewer with --workers"
            ) from error

    def _ticks(self) -> int:
        """Count the ticks in all processes since this was last called."""
        before, self._seen = self._seen, int(self._counter.value)
        return self._seen - before


def tick() -> None:
    """Tell the process that gave out the work that a part of a unit is done."""
    _Process.ticked()


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch computes with one thread within this."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Process:
    """What a worker process keeps between units."""

    model: CnapsModel
    number = 0
    work: Work[Any, Any]
    ticked: Callable[[], None] = lambda: None


def _start(model: Any, counter: Any) -> None:
    def count() -> None:
        with counter.get_lock():
            counter.value += 1

    end_with_parent()
    _Process.ticked = count
    torch.set_num_threads(1)
    set_up_torch()
    _Process.model = pickle.loads(memoryview(model))


def _do(number: int, work: bytes, unit: Any) -> Any:
    if _Process.number != number:
        _Process.work = pickle.loads(work)
        _Process.number = number
    try:
        return _Process.work(_Process.model, unit)
    finally:
        release_spare_memory()
