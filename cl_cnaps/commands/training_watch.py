"""Progress of a training on standard error: a bar when a terminal is watching, lines now and then otherwise."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands.watching import Watch

if TYPE_CHECKING:
    from cl_cnaps.training.step import StepScore

_LINE_EVERY = 30.0
"""Seconds between two lines where no terminal is watching."""


class TrainingWatch(Watch):
    """Shows loss, accuracy, speed and the time left, and every validation."""

    guesses_time_left = False  # a step brings it

    def __init__(self, quiet: bool, unit: str = "tasks") -> None:
        super().__init__(quiet)
        self._unit = unit
        self._task: Any = None
        self._packing: dict[str, Any] = {}
        self._last_line = 0.0

    def packing(self, name: str, images: int, total: int) -> None:
        """Images of a source were decoded and kept, of so many in all."""
        if name not in self._packing:
            if self._bar is not None:
                self._packing[name] = self._bar.add_task(f"packing {name}", total=total, state="")
            else:
                self._packing[name] = None
                self.say(f"packing {total:,} images of {name}")
        if self._bar is not None:
            self._bar.advance(self._packing[name], images)

    def step(self, tasks: int, total: int, score: StepScore, seconds_left: float, rate: float) -> None:
        """A step was made; `rate` is in tasks (or batches) per second."""
        state = (
            f"loss {score.loss:.3f}, accuracy {100 * score.accuracy:.1f} %, {rate:.2f} {self._unit}/s, "
            f"{_duration(seconds_left)} left"
        )
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task("training", total=total, state="")
            self._bar.update(self._task, completed=tasks, state=state)
        elif not self._quiet and (time.monotonic() - self._last_line > _LINE_EVERY or tasks == total):
            self._last_line = time.monotonic()
            click.echo(f"{tasks:,} of {total:,} {self._unit}: {state}", err=True)

    def validated(
        self, tasks: int, adapted: Mapping[str, float], frozen: Mapping[str, float], best: bool
    ) -> None:
        """The weights were validated."""
        each = ", ".join(
            f"{name} {100 * adapted[name]:.1f} (frozen {100 * frozen[name]:.1f})" for name in adapted
        )
        means = [100 * sum(scores.values()) / len(scores) for scores in (adapted, frozen)]
        self.say(
            f"after {tasks:,} {self._unit}: validation {means[0]:.2f} %, frozen features {means[1]:.2f} %"
            f"{', the best so far' if best else ''}: {each}"
        )


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
