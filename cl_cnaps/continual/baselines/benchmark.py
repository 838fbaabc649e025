"""A stream as an Avalanche benchmark."""

from __future__ import annotations

from typing import Any

from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import TaskAwareClassificationDataset
from torch.utils.data import TensorDataset

from cl_cnaps.continual.baselines.inputs import StreamInputs


def avalanche_benchmark(inputs: StreamInputs) -> Any:
    """An Avalanche scenario with one training experience per task.

    It has no test stream, so no strategy can come near a query image. All task labels are 0: classes are told
    apart by their columns in one output layer, and heads are chosen when predicting.
    """
    datasets = [
        TaskAwareClassificationDataset(
            [TensorDataset(support, labels)],
            data_attributes=[DataAttribute(labels.tolist(), "targets"), TaskLabels([0] * len(labels))],
        )
        for support, labels in zip(inputs.support, inputs.labels, strict=True)
    ]
    return with_classes_timeline(with_task_labels(benchmark_from_datasets(train=datasets)))
