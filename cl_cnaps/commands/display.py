"""What is shown on standard error while something runs: a bar on a terminal, lines in a log, nothing when quiet."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

import click

from cl_cnaps.errors import escaped
from cl_cnaps.experiments import Progress

if TYPE_CHECKING:
    from rich.console import Console

    from cl_cnaps.training.step import StepScore

_LINE_EVERY = 30.0
"""Seconds between two lines of progress where no terminal is watching."""


def terminal(*, stderr: bool = False) -> Console:
    """Return standard output, or standard error; a path may hold what Rich would take for its own markup."""
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            """Leave the error to the command, which ends as it does without Rich."""
            raise BrokenPipeError

    return Terminal(stderr=stderr, markup=False, emoji=False, highlight=False)


def echo(text: object = "", *, err: bool = False) -> None:
    """Print a line; names from files, which may hold what a terminal obeys, are shown and not obeyed."""
    click.echo(escaped(str(text)), err=err)


def footer(files: Iterable[tuple[str, object]]) -> None:
    """Print the files that were written, with what they are: the last lines of every verb."""
    for what, path in files:
        echo(f"{what + ':':10}{path}")


def _print(line: str) -> None:
    """Print a line on standard error; no run ends because nobody can read how it goes."""
    with contextlib.suppress(OSError):
        echo(line, err=True)


class Display(Progress):
    """One bar at a time, with a state beside it; in a `with` statement."""

    guesses_time_left = True
    """Whether the bar estimates how long it will take."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._title = ""
        self._state = ""
        self._total = self._done = 0
        self._last_line = time.monotonic()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            from rich import progress

            self._bar = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                *([progress.TimeRemainingColumn()] if self.guesses_time_left else []),
                progress.TextColumn("{task.fields[state]}", markup=False),
                console=terminal(stderr=True),
                transient=True,
            )
            self._bar.start()
        elif not self._quiet:
            threading.Thread(target=self._lines, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._bar is not None:
            self._bar.stop()

    def _lines(self) -> None:
        """Show a line in a log when there was none for a while, however long a step takes."""
        while not self._ended.wait(_LINE_EVERY / 30):
            if self._title and time.monotonic() - self._last_line > _LINE_EVERY:
                self.line(f"{self._done:,} of {self._total:,}: {self._state}".removesuffix(": "))

    def say(self, sentence: str) -> None:
        """Show a sentence."""
        if self._bar is not None:
            self._bar.console.print(escaped(sentence))
        elif not self._quiet:
            _print(sentence)

    def begin(self, title: str, total: int, done: int = 0) -> None:
        """Start a new bar in place of the last; `done` of `total` steps are finished already."""
        self._title, self._total, self._done, self._state = title, total, done, ""
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(escaped(title), total=total, completed=done, state="")
        elif done:
            self.line(f"{done:,} of {total:,} steps finished before")

    def show(self, state: str, advance: int = 0) -> None:
        """Show what is going on, and advance the bar."""
        self._done += advance
        self._state = state
        if self._bar is not None:
            self._bar.update(self._task, advance=advance, state=escaped(state))

    def line(self, text: str) -> None:
        """Show a line, where no terminal is watching."""
        if not self._quiet and self._bar is None:
            self._last_line = time.monotonic()
            _print(f"{self._title}: {text}")


class TrainingDisplay(Display):
    """Loss, accuracy, speed and the time left of a training, and every validation."""

    guesses_time_left = False  # a step brings it

    def __init__(self, quiet: bool, unit: str = "tasks") -> None:
        super().__init__(quiet)
        self._unit = unit
        self._now = ""

    def packing(self, name: str, images: int, total: int) -> None:
        """Images of a source were decoded and kept, of so many in all."""
        if self._now != name:
            self._now = name
            self.begin(f"packing {name}", total)
            self.line(f"{total:,} images")
        self.show("", images)

    def step(self, tasks: int, total: int, score: StepScore, seconds_left: float, rate: float) -> None:
        """Show a step; `rate` is in tasks (or batches) per second."""
        if self._now != "training":
            self._now = "training"
            self.begin("training", total)
        left = f"{int(seconds_left) // 3600}:{int(seconds_left) // 60 % 60:02d}:{int(seconds_left) % 60:02d}"
        state = f"loss {score.loss:.3f}, accuracy {100 * score.accuracy:.1f} %, {rate:.2f} {self._unit}/s, {left} left"
        self.show(state, tasks - self._done)
        if tasks == total:
            self.line(f"{tasks:,} of {total:,} {self._unit}: {state}")

    def validating(self, source: str, done: int, total: int) -> None:
        """Show how far a validation is; it passes over its tasks more than once."""
        if self._now != "validation" or done <= self._done:
            self._now = "validation"
            self.begin("scoring tasks", total)
        self.show(source, done - self._done)

    def validated(self, tasks: int, scores: Mapping[str, Mapping[str, float]], best: bool) -> None:
        """Show the accuracy of a validation, by column: own, static, swapped, frozen."""
        means = ", ".join(f"{kind} {100 * fmean(each.values()):.2f}" for kind, each in scores.items())
        each = ", ".join(
            f"{name} {' / '.join(f'{100 * by_source[name]:.1f}' for by_source in scores.values())}"
            for name in scores["own"]
        )
        self.say(
            f"after {tasks:,} {self._unit}: validation {means}{' (the best so far)' if best else ''}: {each}"
        )
