"""Progress on standard error: a bar when a terminal is watching, plain lines otherwise, nothing when quiet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

import click

from cl_cnaps.commands.terminal import terminal, text_column


class Watch:
    """Bars, or lines."""

    guesses_time_left = True
    """Whether a bar says by its own reckoning how long it will take."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._bar: Any = None

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            self._bar = Progress(
                text_column("task.description"),
                BarColumn(),
                MofNCompleteColumn(),
                *([TimeRemainingColumn()] if self.guesses_time_left else []),
                text_column("task.fields[state]"),
                console=terminal(stderr=True),
                transient=True,
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, sentence: str) -> None:
        """Something that a person should know."""
        if self._bar is not None:
            self._bar.console.print(sentence)
        elif not self._quiet:
            click.echo(sentence, err=True)


class _OneBar(Watch):
    """One bar at a time."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self._task: Any = None
        self._name = ""

    def _begin(self, name: str, total: int, completed: int, line: str) -> None:
        """A new bar in place of the last, or a line."""
        self._name = name
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(name, total=total, completed=completed, state="")
        else:
            self._say(line)

    def _say(self, line: str) -> None:
        """A line, where no terminal is watching."""
        if not self._quiet and self._bar is None:
            click.echo(f"{self._name}: {line}", err=True)

    def _show(self, state: str, advance: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, advance=advance, state=state)


class StreamWatch(_OneBar):
    """Shows how far the runs of a stream are."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self._tasks = 0
        self._runs = 0

    def plan(self, name: str, runs: int, tasks: int, finished: int) -> None:
        """A stream is about to run; some of its runs may be finished already."""
        self._tasks, self._runs = tasks, runs
        resumed = f", {finished} finished before" if finished else ""
        self._begin(name, runs * tasks, finished * tasks, f"{runs} runs of {tasks} tasks{resumed}")

    def step(self, run: int, step: int, accuracy: Mapping[Any, float]) -> None:
        """A task was learned and all tasks seen were scored."""
        scores = _scores(accuracy)
        self._show(scores, 1)
        if step == self._tasks - 1:
            self._say(f"run {run + 1} of {self._runs}: {scores}")


class ActiveWatch(_OneBar):
    """Shows how far the runs of active learning are."""

    def plan(self, name: str, units: int, finished: int) -> None:
        """A model is about to run; some of its units, a run of a task each, may be finished already."""
        resumed = f", {finished} finished before" if finished else ""
        self._begin(name, units, finished, f"{units} runs{resumed}" if units > 1 else f"1 run{resumed}")

    def preparing(self, what: str) -> None:
        """Something is done that all runs share."""
        self._show(what, 0)

    def unit(self, what: str, final: Mapping[str, float]) -> None:
        """One run of one task is done, with this accuracy at the end for each strategy."""
        self._show(_scores(final), 1)
        self._say(f"{what}: {_scores(final)}")


class SweepWatch(_OneBar):
    """Shows how many runs of a sweep have ended."""

    def __init__(self, quiet: bool, name: str, runs: int) -> None:
        super().__init__(quiet)
        self._planned = name, runs
        self._ended = 0

    def __enter__(self) -> Self:
        super().__enter__()
        name, runs = self._planned
        self._begin(name, runs, 0, f"{runs} runs" if runs > 1 else "1 run")
        return self

    def ended(self, run: str, status: str, reason: str | None) -> None:
        """A run ended."""
        self._ended += 1
        said = f"{run}: {status}" + (f" ({reason})" if reason else "")
        self._show(said, 1)
        self._say(f"{self._ended} of {self._planned[1]}: {said}")


def _scores(accuracy: Mapping[Any, float]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in accuracy.items())
