"""How an experiment shows that it advances; imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass


class Progress:
    """Shows how an experiment advances: this one shows nothing, those derived from it do."""

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Start: `done` of `total` steps are finished already."""

    def show(self, state: str, advance: int = 0) -> None:
        """Show what is going on, and advance by some steps."""

    def line(self, text: str) -> None:
        """Show a result that is worth a line."""


@dataclass(frozen=True)
class Labelled(Progress):
    """Progress of one of several experiments."""

    progress: Progress
    label: str

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Start, as all of them do together."""
        self.progress.begin(title, total, done)

    def show(self, state: str, advance: int = 0) -> None:
        """Show what is going on in this one."""
        self.progress.show(f"{self.label}: {state}", advance)

    def line(self, text: str) -> None:
        """Show a result of this one."""
        self.progress.line(f"{self.label}: {text}")
