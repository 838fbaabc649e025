"""A stream as an Avalanche benchmark, with task labels or with training experiences alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import TaskAwareClassificationDataset
from torch import Tensor
from torch.utils.data import TensorDataset

from cl_cnaps.continual.stream import Stream


def avalanche_benchmark(stream: Stream, parts: Sequence[Sequence[Tensor]] | None = None) -> Any:
    """Return an Avalanche scenario with `train_stream` (support images) and `test_stream` (queries).

    Args:
        stream: task t gets the task label t.
        parts: for every task, the images of each of its training experiences; all of them in one if not given.
    """
    parts = parts or [[torch.arange(len(task.support_labels))] for task in stream.tasks]
    train = [
        _dataset(task.support_images[part], task.support_labels[part], t)
        for t, task in enumerate(stream.tasks)
        for part in parts[t]
    ]
    test = [_dataset(task.query_images, task.query_labels, t) for t, task in enumerate(stream.tasks)]
    return _benchmark(train=train, test=test)


def training_experiences(inputs: Sequence[Tensor], labels: Sequence[Tensor]) -> Any:
    """One training experience per task, of whatever a baseline reads.

    There is no test stream, so no strategy can come near a query image. All task labels are 0: classes have their
    columns in one output layer, and heads are chosen when predicting.
    """
    return _benchmark(train=[_dataset(*task, 0) for task in zip(inputs, labels, strict=True)]).train_stream


def _benchmark(**datasets: list[TaskAwareClassificationDataset]) -> Any:
    return with_classes_timeline(with_task_labels(benchmark_from_datasets(**datasets)))


def _dataset(inputs: Tensor, labels: Tensor, task: int) -> TaskAwareClassificationDataset:
    return TaskAwareClassificationDataset(
        [TensorDataset(inputs, labels)],
        data_attributes=[DataAttribute(labels.tolist(), "targets"), TaskLabels([task] * len(labels))],
    )
