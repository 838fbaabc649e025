"""Processes that share work: started so that Ctrl-C is their parent's alone, and ended with their parent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from threading import Thread


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block.

    A process that is started in the block keeps it back for ever. The terminal sends Ctrl-C to all processes: without
    this each would print a traceback. Now their parent alone ends them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its start, with the first process's, would let signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_interrupts() -> None:
    """Let Ctrl-C reach this process, though it was started while interrupts waited."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with_parent(*, group: bool = False) -> None:
    """End this process when its parent has ended, with its process group if `group`: a killed parent ends nobody."""
    parent = parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        if group:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
