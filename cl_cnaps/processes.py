"""Processes that share work: started so that Ctrl-C and SIGTERM are their parent's alone, and ended by their parent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from threading import Thread, current_thread, main_thread

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MASKED = _SIGNALS if hasattr(signal, "sigwaitinfo") else (signal.SIGINT,)
"""What a process that starts leaves to its parent; where it cannot tell who sent a SIGTERM, that ends it."""


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the end of the block.

    A process that starts within the block gets neither. Terminals and cluster managers send them to all processes of a
    command: each would print a traceback, or be missed by a parent that finishes its step and saves. The parent alone
    ends them (`end_with_parent`). It must not leave while one starts, which then would find half of what it is started
    with. The signal mask alone does not hold a signal back: another thread may take it.
    """
    waiting: list[int] = []
    before = {}
    if current_thread() is main_thread():
        before = {number: signal.signal(number, lambda got, _: waiting.append(got)) for number in _SIGNALS}
    can_mask = hasattr(signal, "pthread_sigmask")
    if can_mask:
        resource_tracker.ensure_running()  # its start, with the first process's, would let signals through
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _MASKED)
    try:
        yield
    finally:
        if can_mask:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


def take_interrupts() -> None:
    """Let Ctrl-C and SIGTERM reach this process, though it was started while interrupts waited."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _MASKED)


def end_with_parent(*, group: bool = False) -> None:
    """End this process when its parent ends or terminates it, with its process group if `group`."""
    parent = parent_process()
    if parent is None:
        return
    sentinel, number = parent.sentinel, parent.pid

    def leave() -> None:
        if group:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(1)

    def watch() -> None:
        wait([sentinel])
        leave()

    def obey() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != number:
            pass
        leave()

    Thread(target=watch, daemon=True).start()
    if hasattr(signal, "pthread_sigmask") and signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        Thread(target=obey, daemon=True).start()
