"""Progress on standard error: a bar when a terminal is watching, plain lines otherwise, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click


class StreamWatch:
    """Shows how far the runs of a stream are."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._name = ""
        self._tasks = 0
        self._runs = 0

    def __enter__(self) -> StreamWatch:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[accuracy]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def plan(self, name: str, runs: int, tasks: int, finished: int) -> None:
        """A stream is about to run; some of its runs may be finished already."""
        self._name, self._tasks, self._runs = name, tasks, runs
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(name, total=runs * tasks, completed=finished * tasks, accuracy="")
        elif not self._quiet:
            resumed = f", {finished} finished before" if finished else ""
            click.echo(f"{name}: {runs} runs of {tasks} tasks{resumed}", err=True)

    def step(self, run: int, step: int, accuracy: Mapping[Any, float]) -> None:
        """A task was learned and all tasks seen were scored."""
        scores = ", ".join(f"{head} {100 * value:.1f} %" for head, value in accuracy.items())
        if self._bar is not None:
            self._bar.update(self._task, advance=1, accuracy=scores)
        elif not self._quiet and step == self._tasks - 1:
            click.echo(f"{self._name}: run {run + 1} of {self._runs}: {scores}", err=True)
