"""A measured number with the bar it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    benchmark: str
    what: str
    value: float
    unit: str = "times"
    bar: float | None = None
    """What the project promises; None for a number that is only reported."""
    at_least: bool = True
    """Whether the value must reach the bar or must not pass it."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the bar is held; None without one."""
        if self.bar is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def as_json(self) -> dict[str, Any]:
        """What a line of `--json` holds."""
        return {**asdict(self), "met": self.met}


def figure(row: Mapping[str, Any]) -> Figure:
    """The figure that `as_json` was made from."""
    return Figure(**{key: value for key, value in row.items() if key != "met"})
