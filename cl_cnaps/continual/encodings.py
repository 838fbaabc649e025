"""How the task encoding d^t moves along a stream (Section "Continual Learning")."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from torch import Tensor

from cl_cnaps.errors import BadInputError

EncodingName = Literal["moving", "first", "averaging"]
ENCODINGS: tuple[EncodingName, ...] = get_args(EncodingName)


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
        """Whether no later task can change it."""
        return self.kind == "first" and self.tasks > 0

    def observe(self, encoding: Tensor | None) -> StreamEncoding:
        """The encoding after one more task, whose own encoding is given (None where features are frozen)."""
        tasks = self.tasks + 1
        if encoding is None or self.value is None or self.kind == "moving":
            return replace(self, tasks=tasks, value=self.value if self.settled else encoding)
        if self.kind == "first":
            return replace(self, tasks=tasks)
        return replace(self, tasks=tasks, value=encoding / tasks + self.value * ((tasks - 1) / tasks))

    def state(self) -> dict[str, Any]:
        """Plain values, for a state dict."""
        return {"kind": self.kind, "tasks": self.tasks, "value": self.value}
