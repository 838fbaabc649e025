"""The evaluation protocol: learn a task, then predict the queries of every task seen so far, for each head.

The only place where query labels are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cl_cnaps.continual.stream import Head, Learner, Stream, accuracy
from cl_cnaps.torch_setup import release_spare_memory


@dataclass(frozen=True)
class RunResult:
    """One run over a stream: A[step, task] for each head as rows, and what it cost."""

    rows: list[dict[str, Any]]
    seconds: float
    memory_bytes: int


def run_stream(
    learner: Learner,
    stream: Stream,
    heads: Sequence[Head],
    run: int,
    progress: Callable[[int, dict[Head, float]], None] = lambda _step, _accuracy: None,
) -> RunResult:
    """Run a learner over a stream; `progress` is told each step's mean accuracy per head over the tasks seen."""
    rows: list[dict[str, Any]] = []
    start = time.perf_counter()
    for step in range(len(stream.tasks)):
        learner.learn(step)
        means: dict[Head, float] = {}
        for head in heads:
            scores = [
                accuracy(learner.predict(task, head), stream.tasks[task].query_labels)
                for task in range(step + 1)
            ]
            means[head] = sum(scores) / len(scores)
            rows += [
                {
                    "run": run,
                    "step": step,
                    "task": task,
                    "head": head,
                    "accuracy": score,
                    "n_queries": len(stream.tasks[task].query_labels),
                }
                for task, score in enumerate(scores)
            ]
        progress(step, means)
        release_spare_memory()
    return RunResult(rows, time.perf_counter() - start, learner.memory_bytes())
