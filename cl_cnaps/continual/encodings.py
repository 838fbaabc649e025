"""How the task encoding d^t moves along a stream (Section "Continual Learning").

A rule is one small function of d^(t-1), of what task t by itself is encoded as, and of t. `encoding` adds one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from cl_cnaps.errors import BadInputError

EncodingName = str
"""A name in `ENCODINGS`."""

EncodingRule = Callable[[Tensor, Tensor, int], Tensor]
"""d^t of d^(t-1), the encoding of task t by itself, and t = 2, 3, ...; d^1 is that of the first task by itself."""

ENCODINGS: dict[EncodingName, EncodingRule] = {}


def encoding(name: EncodingName) -> Callable[[EncodingRule], EncodingRule]:
    """Register a rule under a name, for strategies and the command line."""

    def register(rule: EncodingRule) -> EncodingRule:
        if name in ENCODINGS:
            raise BadInputError(f"there is an encoding called {name!r} already")
        ENCODINGS[name] = rule
        return rule

    return register


@encoding("moving")
def moving(_before: Tensor, own: Tensor, _t: int) -> Tensor:
    """That of the latest task."""
    return own


@encoding("first")
def first(before: Tensor, _own: Tensor, _t: int) -> Tensor:
    """That of the first task for ever."""
    return before


@encoding("averaging")
def averaging(before: Tensor, own: Tensor, t: int) -> Tensor:
    """The mean over all tasks so far."""
    return own / t + before * ((t - 1) / t)


@dataclass(frozen=True)
class StreamEncoding:
    """d^t and how many tasks went into it; `observe` gives the next one and leaves this one alone."""

    kind: EncodingName
    tasks: int = 0
    value: Tensor | None = None

    def __post_init__(self) -> None:
        if self.kind not in ENCODINGS:
            raise BadInputError(f"unknown encoding {self.kind!r}; there are {', '.join(ENCODINGS)}")

    @property
    def settled(self) -> bool:
        """Whether no later task can change it, so that later tasks need not be encoded."""
        return self.kind == "first" and self.tasks > 0

    def observe(self, own: Tensor | None) -> StreamEncoding:
        """The encoding after one more task, whose own encoding is given (None where features are frozen)."""
        tasks = self.tasks + 1
        if self.settled:
            return replace(self, tasks=tasks)
        if own is None or self.value is None:
            return replace(self, tasks=tasks, value=own)
        value = ENCODINGS[self.kind](self.value, own, tasks)
        if value.shape != own.shape:
            raise BadInputError(
                f"the encoding {self.kind!r} must give a vector of {own.numel()} numbers, not {tuple(value.shape)}"
            )
        return replace(self, tasks=tasks, value=value)

    def state(self) -> dict[str, Any]:
        """Plain values, for a state dict."""
        return {"kind": self.kind, "tasks": self.tasks, "value": self.value}
