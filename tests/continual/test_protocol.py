"""Learn, then predict every task seen so far: which questions are asked, when, and what becomes of the answers."""

from __future__ import annotations

import torch
from continual.small_streams import small_stream
from torch import Tensor

from cl_cnaps.continual.stream import Head, run_stream


class Scripted:
    """Gets the first `right(task, head, steps learned)` queries right and notes everything it is asked."""

    def __init__(self, stream: object) -> None:
        self.stream = stream
        self.log: list[tuple[object, ...]] = []
        self.steps = 0

    def learn(self, step: int) -> None:
        self.log.append(("learn", step))
        self.steps += 1

    def predict(self, task: int, head: Head) -> Tensor:
        self.log.append(("predict", task, head))
        labels = self.stream.tasks[task].query_labels.clone()  # type: ignore[attr-defined]
        wrong = self.steps + task + (head == "single")
        labels[:wrong] += 1
        return labels

    def log_probabilities(self, task: int, head: Head) -> None:
        self.log.append(("probabilities", task, head))

    def memory_bytes(self) -> int:
        return 1000 * self.steps


def test_after_each_task_every_task_seen_is_scored_for_each_head() -> None:
    stream = small_stream()
    learner = Scripted(stream)
    steps: list[tuple[int, dict[Head, float]]] = []
    result = run_stream(
        learner, stream, ["single", "multi"], run=4, progress=lambda *told: steps.append(told)
    )
    assert learner.log[:3] == [("learn", 0), ("predict", 0, "single"), ("predict", 0, "multi")]
    assert [entry for entry in learner.log if entry[0] == "learn"] == [("learn", t) for t in range(3)]
    assert len(result.rows) == 2 * (1 + 2 + 3)
    for row in result.rows:
        wrong = row["step"] + 1 + row["task"] + (row["head"] == "single")
        assert row["accuracy"] == (12 - wrong) / 12
        assert (row["run"], row["n_queries"]) == (4, 12)
        assert row["task"] <= row["step"]
    assert result.memory_bytes == 3000
    assert result.seconds > 0
    assert [step for step, _ in steps] == [0, 1, 2]
    # Classes are disjoint, so that the single head cannot know a task ahead.
    assert [(row["head"], row["forward_transfer"]) for row in result.measures] == [
        ("single", 0.0),
        ("multi", None),
    ]
    assert all(row["calibration_error"] is row["negative_log_likelihood"] is None for row in result.measures)
    assert sum(row["count"] for row in result.confusion if row["head"] == "multi") == 3 * 12
    assert steps[1][1]["multi"] == ((12 - 2) / 12 + (12 - 3) / 12) / 2


def test_one_head_alone_can_be_asked() -> None:
    stream = small_stream()
    rows = run_stream(Scripted(stream), stream, ["multi"], run=0).rows
    assert {row["head"] for row in rows} == {"multi"}
    assert torch.tensor([row["accuracy"] for row in rows]).isfinite().all()
