from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from cl_cnaps.continual.stream import Stream, Task

MakeStream = Callable[..., Stream]


def patches(labels: Tensor, generator: torch.Generator, *, grey: bool, size: int) -> Tensor:
    """Noise with a bright square whose place tells the class: easy, and different for each class."""
    images = torch.randint(0, 60, (len(labels), 3, size, size), generator=generator, dtype=torch.uint8)
    side = size // 4
    for image, label in zip(images, labels.tolist(), strict=True):
        top, left = side * (label // 4 % 4), side * (label % 4)
        image[:, top : top + side, left : left + side] += 150
    return images[:, :1].expand(-1, 3, -1, -1).contiguous() if grey else images


@pytest.fixture(scope="session")
def make_stream() -> MakeStream:
    def make(
        task_classes: Sequence[tuple[int, ...]] = ((0, 1), (2, 3), (4, 5)),
        *,
        shots: int = 12,
        queries: int = 6,
        grey: bool = True,
        size: int = 28,
    ) -> Stream:
        generator = torch.Generator().manual_seed(7)
        tasks = []
        for classes in task_classes:
            support_labels = torch.tensor(classes).repeat_interleave(shots)
            query_labels = torch.tensor(classes).repeat_interleave(queries)
            tasks.append(
                Task(
                    name=f"task {classes}",
                    classes=classes,
                    support_images=patches(support_labels, generator, grey=grey, size=size),
                    support_labels=support_labels,
                    query_images=patches(query_labels, generator, grey=grey, size=size),
                    query_labels=query_labels,
                )
            )
        return Stream("patches", tuple(tasks))

    return make


@pytest.fixture(scope="session")
def features() -> Callable[[Tensor], Tensor]:
    """A frozen random layer with a ReLU: features are not negative, as after most backbones."""
    weights = torch.randn(7 * 7, 24, generator=torch.Generator().manual_seed(3))

    def embed(images: Tensor) -> Tensor:
        small = torch.nn.functional.adaptive_avg_pool2d(images.float().mean(dim=1), 7) / 255
        return torch.relu(small.flatten(start_dim=1) @ weights)

    return embed
