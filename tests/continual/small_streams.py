"""Streams of small made-up images, as tensors and as Avalanche benchmarks, and what tests ask about them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import (
    TaskLabels,
    as_classification_dataset,
    as_taskaware_classification_dataset,
)
from torch import Tensor
from torch.utils.data import TensorDataset

from cl_cnaps.continual.stream import Stream, Task

PAIRS = ((0, 1), (2, 3), (4, 5))


def images_of(labels: Tensor, seed: int, size: int = 32) -> Tensor:
    """Noise over a colour and a bright bar that tell the class: easy, but not without mistakes."""
    generator = torch.Generator().manual_seed(seed)
    palette = torch.randint(0, 110, (64, 3, 1, 1), generator=torch.Generator().manual_seed(99))
    images = palette[labels] + torch.randint(0, 90, (len(labels), 3, size, size), generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, :, 4 * (label % 8) : 4 * (label % 8) + 4] += 40
    return images.to(torch.uint8)


def write_mnist(folder: Path) -> None:
    """Write MNIST's files as Avalanche finds them: 20 and 10 images a class, drawn here."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count, seed in (("train", 20, 0), ("t10k", 10, 1)):
        labels = torch.arange(10, dtype=torch.uint8).repeat_interleave(count)
        images = images_of(labels.long(), seed, size=28)[:, 0].numpy()
        (raw / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 2051, *images.shape) + images.tobytes()
        )
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 2049, len(labels)) + labels.numpy().tobytes()
        )


def task_of_classes(classes: Sequence[int], shots: int, queries: int, seed: int, name: str = "") -> Task:
    ids = torch.tensor(classes)
    support, query = ids.repeat_interleave(shots), ids.repeat_interleave(queries)
    return Task(
        name or str(classes),
        tuple(classes),
        images_of(support, 2 * seed),
        support,
        images_of(query, 2 * seed + 1),
        query,
    )


def small_stream(
    task_classes: Sequence[Sequence[int]] = PAIRS, shots: int = 8, queries: int = 6, seed: int = 0
) -> Stream:
    tasks = tuple(
        task_of_classes(classes, shots, queries, 100 * seed + t) for t, classes in enumerate(task_classes)
    )
    return Stream("small", tasks)


class Images(TensorDataset):
    """Images with `targets`, as Avalanche's builders want them; floats in [0, 1] or uint8."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        super().__init__(images, labels)
        self.targets = labels.tolist()


def support_and_query(
    classes: int = 6, shots: int = 8, queries: int = 6, seed: int = 0
) -> tuple[Images, Images]:
    """All classes together, shuffled, as a benchmark builder splits them; float images."""
    generator = torch.Generator().manual_seed(seed)
    sets = []
    for count, offset in ((shots, 0), (queries, 1)):
        labels = torch.arange(classes).repeat_interleave(count)
        labels = labels[torch.randperm(len(labels), generator=generator)]
        sets.append(Images(images_of(labels, 1000 + 2 * seed + offset).float() / 255, labels))
    return sets[0], sets[1]


def benchmark_of(
    stream: Stream, *, labelled: bool = True, query_labels: Sequence[Tensor] | None = None, grey: bool = False
) -> Any:
    """The stream through Avalanche's present builders: with task labels, or with none at all."""

    def dataset(images: Tensor, labels: Tensor, task: int) -> Any:
        shown = images.float() / 255
        data = Images(shown.mean(dim=1, keepdim=True) if grey else shown, labels)
        if labelled:
            given = as_classification_dataset(data).update_data_attribute(
                "targets_task_labels", TaskLabels([task] * len(data))
            )
            return as_taskaware_classification_dataset(given)
        return as_classification_dataset(data)

    labels = query_labels or [task.query_labels for task in stream.tasks]
    benchmark = benchmark_from_datasets(
        train=[dataset(task.support_images, task.support_labels, t) for t, task in enumerate(stream.tasks)],
        test=[dataset(task.query_images, labels[t], t) for t, task in enumerate(stream.tasks)],
    )
    benchmark = with_classes_timeline(benchmark)
    return with_task_labels(benchmark) if labelled else benchmark


def digest(value: Any) -> str:
    """SHA-256 of anything made of tensors and plain values, to the bit."""
    sha = hashlib.sha256()

    def walk(part: Any) -> None:
        if isinstance(part, Tensor):
            sha.update(f"{part.dtype}{tuple(part.shape)}".encode())
            sha.update(part.detach().cpu().contiguous().numpy().tobytes())
        elif isinstance(part, Mapping):
            for key in part:
                sha.update(repr(key).encode())
                walk(part[key])
        elif isinstance(part, list | tuple):
            sha.update(f"[{len(part)}]".encode())
            for item in part:
                walk(item)
        else:
            sha.update(repr(part).encode())

    walk(value)
    return sha.hexdigest()
