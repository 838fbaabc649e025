"""SIGINT and SIGTERM as a question that a loop asks at a good moment."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPATIENT = 3.0
"""Seconds after which another SIGINT is a person's second one; launchers pass on the first one twice."""


class Interruption:
    """Inside the block signals are noted only; a SIGINT some seconds after the first raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._previous: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    def __enter__(self) -> Interruption:
        self._previous = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        """Whether somebody asked to stop."""
        return self._first is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif number == signal.SIGINT and now - self._first > _IMPATIENT:
            raise KeyboardInterrupt
