"""Progress of few-shot tasks: bars on standard error while a terminal is watching."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cl_cnaps.commands.terminal import terminal, text_column


class RunningMean:
    """Tells a progress bar how many tasks of a data set are done and their mean accuracy."""

    def __init__(self, advance: Callable[..., None]) -> None:
        self._advance = advance
        self._accuracies: list[float] = []

    def __call__(self, scores: Sequence[Any]) -> None:
        """Tasks were scored; without any, images were embedded."""
        self._accuracies += [score.accuracy for score in scores]
        if self._accuracies:
            mean = sum(self._accuracies) / len(self._accuracies)
            self._advance(len(scores), f"{100 * mean:.1f} %")
        else:
            self._advance(0, "embedding images")


class TaskBars:
    """Progress bars for reading images and scoring tasks."""

    def __init__(self, bar: Callable[..., Any], say: Callable[[str], None]) -> None:
        self._bar = bar
        self.say = say
        """Tells a person a sentence, unless silent."""

    @contextmanager
    def reading(self, title: str, images: int) -> Iterator[Callable[..., None]]:
        """Images of a data set are decoded."""
        with self._bar(f"{title}: reading images", images) as advance:
            yield advance

    @contextmanager
    def tasks(self, title: str, tasks: int) -> Iterator[RunningMean]:
        """Tasks of a data set are scored."""
        with self._bar(title, tasks) as advance:
            yield RunningMean(advance)


@contextmanager
def task_bars(silent: bool) -> Iterator[TaskBars]:
    """Bars on standard error if a terminal is watching; yields what makes them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = terminal(stderr=True)
    columns = (
        text_column("task.description"),
        BarColumn(),
        MofNCompleteColumn(),
        text_column("task.fields[note]"),
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

        def say(sentence: str) -> None:
            if not silent:
                console.print(sentence)

        yield TaskBars(bar, say)
