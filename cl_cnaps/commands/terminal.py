"""Where tables and bars are printed: text as it is, since a path may hold what Rich would take for its own markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn


def terminal(*, stderr: bool = False) -> Console:
    """Standard output, or standard error; nothing in square brackets or between colons means anything."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def text_column(field: str) -> TextColumn:
    """A field of a progress bar, such as `task.description`, as it is."""
    from rich.progress import TextColumn

    return TextColumn(f"{{{field}}}", markup=False)
