"""What one panel of a chart shows: the accuracies of one model, encoding and head on one stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cl_cnaps.metrics.continual import accuracy_by_step
from cl_cnaps.metrics.intervals import Array, interval95
from cl_cnaps.records.record import config_digest
from cl_cnaps.report.labels import adaptation_words, count, method_name, paper_cell, percent
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.view import Row


@dataclass(frozen=True)
class Panel:
    """Accuracies in per cent for drawing, and the words around them."""

    summary: Row
    task_names: tuple[str, ...]
    accuracy: Array
    """A[run, step, task], per cent; NaN where the task had not been seen."""
    setting: str
    """Equal for panels that differ in nothing but encoding and head."""
    confusion: tuple[list[str], NDArray[np.int64]] | None = None
    """Classes and counts after the last step, if the record has them."""
    classes_per_task: tuple[int, ...] = ()

    @property
    def n_tasks(self) -> int:
        """Length of the stream."""
        return int(self.accuracy.shape[2])

    @property
    def title(self) -> str:
        """`First encoding, single head`."""
        encoding, head = self.summary["encoding"], f"{self.summary['head']} head"
        return f"{encoding.capitalize()} encoding, {head}" if encoding else head.capitalize()

    @property
    def outcome(self) -> str:
        """`final mean 85.5 ± 0.4 %; paper 69.5 ± 1.0 %`."""
        final = self.summary["final_accuracy"]
        ours = f"final mean {percent(final['mean'], final['ci95'])} %"
        return ours + (f"; paper {paper_cell(self.paper)} %" if self.paper else "")

    @property
    def words(self) -> dict[str, str]:
        """Model, encoding, backbone, adaptation, shots and runs; empty where there is none."""
        summary = self.summary
        return {
            "model": method_name(summary),
            "encoding": f"{summary['encoding']} encoding" if summary["encoding"] else "",
            "backbone": summary["backbone"] or "",
            "features": adaptation_words(summary["adaptation"]),
            "shots": count(summary["shots"], "shot"),
            "runs": count(summary["runs"], "run"),
        }

    @property
    def circumstances(self) -> list[str]:
        """Backbone, adaptation, shots and runs, where there are any."""
        return [word for key, word in self.words.items() if word and key not in ("model", "encoding")]

    @property
    def setting_title(self) -> list[str]:
        """Benchmark, model, backbone, adaptation, shots and runs: what panels of one setting share."""
        return [self.summary["benchmark"], self.words["model"], *self.circumstances]

    @property
    def paper(self) -> dict[str, Any] | None:
        """The paper's final mean for this panel, per cent."""
        paper: dict[str, Any] | None = self.summary["paper"]
        return paper

    def mean(self) -> Array:
        """Mean over runs, steps x tasks."""
        return np.asarray(self.accuracy.mean(axis=0))

    def half_intervals(self) -> Array | None:
        """Half the 95 % interval over runs, steps x tasks; None for a single run."""
        return interval95(self.accuracy)

    def by_step(self) -> tuple[Array, Array | None]:
        """Mean over the tasks seen, for every step: its mean over runs and half the 95 % interval."""
        by_step = accuracy_by_step(self.accuracy)
        return np.asarray(by_step.mean(axis=0)), interval95(by_step)


def panels_of(record: StreamView) -> list[Panel]:
    """One panel per head of a record."""
    config = record.record.config
    shared = {key: value for key, value in config.items() if key not in ("encoding", "head", "heads")}
    return [
        Panel(
            summary=summary,
            task_names=tuple(record.task_names),
            accuracy=100 * record.accuracy(summary["head"]),
            setting=config_digest(shared),
            confusion=record.confusion(summary["head"]),
            classes_per_task=tuple(map(len, config.get("tasks", ()))),
        )
        for summary in record.rows
    ]
