"""What a sweep asks of whoever computes: take a task, say when one has ended and how."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol


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
