"""Progress of few-shot tasks: bars on standard error while a terminal is watching."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class RunningMean:
    """Tells a progress bar how many tasks are done and their mean accuracy."""

    def __init__(self, advance: Callable[..., None]) -> None:
        self._advance = advance
        self._accuracies: list[float] = []

    def start_again(self) -> None:
        """Forget the tasks so far: others come now."""
        self._accuracies.clear()

    def __call__(self, scores: Sequence[Any]) -> None:
        """Tasks were scored; without any, images were embedded."""
        self._accuracies += [score.accuracy for score in scores]
        if self._accuracies:
            mean = sum(self._accuracies) / len(self._accuracies)
            self._advance(len(scores), f"{100 * mean:.1f} %")
        else:
            self._advance(0, "embedding images")


@contextmanager
def task_bars(silent: bool) -> Iterator[Callable[..., Any]]:
    """Bars on standard error if a terminal is watching; yields what makes one."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=silent or not console.is_terminal
    ) as progress:

        @contextmanager
        def bar(title: str, total: int) -> Iterator[Callable[..., None]]:
            task = progress.add_task(title, total=total, note="")
            yield lambda done, note="": progress.update(task, advance=done, note=note)
            progress.remove_task(task)

        yield bar
