"""A stream as an Avalanche benchmark, with task labels."""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import TaskAwareClassificationDataset
from torch import Tensor
from torch.utils.data import TensorDataset

from cl_cnaps.continual.stream import Stream


def avalanche_benchmark(stream: Stream) -> Any:
    """An Avalanche scenario with `train_stream` (support images) and `test_stream` (queries); task t is labelled t."""
    train = [_dataset(task.support_images, task.support_labels, t) for t, task in enumerate(stream.tasks)]
    test = [_dataset(task.query_images, task.query_labels, t) for t, task in enumerate(stream.tasks)]
    return with_classes_timeline(with_task_labels(benchmark_from_datasets(train=train, test=test)))


def _dataset(images: Tensor, labels: Tensor, task: int) -> TaskAwareClassificationDataset:
    return TaskAwareClassificationDataset(
        [TensorDataset(images, labels)],
        data_attributes=[DataAttribute(labels.tolist(), "targets"), TaskLabels([task] * len(labels))],
    )
