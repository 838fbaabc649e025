"""Where the time of a piece of work goes, by functions that are watched from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

Watched = tuple[Any, str]
"""A module, class or object, and the name of its function."""

Parts = Mapping[str, Sequence[Watched]]

REST = "the rest"


class Stopwatch:
    """Seconds by part. A part's time is without that of the parts it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What happens meanwhile is of this part, but for what another part takes over."""
        self._book()
        self._running.append(name)
        try:
            yield
        finally:
            self._book()
            self._running.pop()

    def _book(self) -> None:
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def time_by_part(work: Callable[[], object], parts: Parts) -> dict[str, float]:
    """Seconds that `work` spends in the functions of each part, and in the rest; the functions are put back."""
    watch = Stopwatch()
    before = [(owner, name, owner.__dict__.get(name)) for places in parts.values() for owner, name in places]
    try:
        for part, places in parts.items():
            for owner, name in places:
                setattr(owner, name, _watched(getattr(owner, name), watch, part))
        with watch.part(REST):
            work()
    finally:
        for owner, name, own in before:
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
    return {part: watch.seconds.get(part, 0.0) for part in (*parts, REST)}


def _watched(function: Callable[..., Any], watch: Stopwatch, part: str) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with watch.part(part):
            return function(*args, **kwargs)

    return timed
