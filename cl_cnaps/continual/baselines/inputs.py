"""The images of a stream as a baseline reads them: features of a frozen backbone, or small images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.stream import Stream
from cl_cnaps.errors import BadInputError

FeatureFunction = Callable[[Tensor], Tensor]
"""uint8 images, N x 3 x H x W, to features, N x D."""

View = Callable[[Tensor], Tensor]
"""uint8 images, N x 3 x H x W, to what the method reads, N x ..."""

GREY_PIXELS = 28
COLOUR_PIXELS = 32
_BATCH = 128


class StreamInputs:
    """Support and query images of every task through one view, and labels as columns of one output layer.

    Class ids of the stream may be any integers: column j stands for class `class_ids[j]`.
    """

    def __init__(self, stream: Stream, view: View) -> None:
        _check(stream)
        self.stream = stream
        self.class_ids = torch.tensor(sorted({c for task in stream.tasks for c in task.classes}))
        self._view = view
        self.support = tuple(_viewed(view, task.support_images) for task in stream.tasks)
        self.labels = tuple(self.columns(task.support_labels) for task in stream.tasks)
        self.classes = tuple(self.columns(torch.tensor(sorted(set(task.classes)))) for task in stream.tasks)
        self._queries: dict[int, Tensor] = {}

    def columns(self, ids: Tensor) -> Tensor:
        """Columns of the output layer for class ids."""
        return torch.searchsorted(self.class_ids, ids.cpu())

    def query(self, task: int) -> Tensor:
        """The queries of a task; computed at the first call."""
        if task not in self._queries:
            self._queries[task] = _viewed(self._view, self.stream.tasks[task].query_images)
        return self._queries[task]


def feature_view(features: FeatureFunction) -> View:
    """The backbone's features as float32 on the CPU."""

    def view(images: Tensor) -> Tensor:
        with torch.no_grad():
            found = features(images).detach().to("cpu", torch.float32)
        if found.ndim != 2 or len(found) != len(images):
            shape = tuple(found.shape)
            raise BadInputError(
                f"the feature function gave shape {shape} for {len(images)} images; wanted N x D"
            )
        if not bool(torch.isfinite(found).all()):
            raise BadInputError("the feature function gave values that are not finite")
        return found

    return view


def is_grey(stream: Stream) -> bool:
    """Whether all support images have three equal channels."""
    return all(
        bool((task.support_images[:, :1] == task.support_images[:, 1:]).all()) for task in stream.tasks
    )


def image_view(grey: bool) -> View:
    """uint8 images of the small network's size: N x 1 x 28 x 28 if grey, else N x 3 x 32 x 32."""
    size = GREY_PIXELS if grey else COLOUR_PIXELS

    def small(images: Tensor) -> Tensor:
        kept = images.to("cpu", torch.float32)
        if grey:
            kept = kept.mean(dim=1, keepdim=True)
        if kept.shape[-2:] != (size, size):
            kept = F.interpolate(
                kept, size=(size, size), mode="bilinear", antialias=True, align_corners=False
            )
        return kept.round().clamp(0, 255).to(torch.uint8)

    return lambda images: torch.cat([small(part) for part in torch.split(images, _BATCH)])


def _viewed(view: View, images: Tensor) -> Tensor:
    # One image at least, so that an empty set of queries still has the right shape behind it.
    return view(images) if len(images) else view(images.new_zeros((1, *images.shape[1:])))[:0]


def _check(stream: Stream) -> None:
    if not stream.tasks:
        raise BadInputError(f"stream {stream.name!r} has no tasks")
    for number, task in enumerate(stream.tasks):
        where = f"task {number} ({task.name}) of stream {stream.name!r}"
        if len(task.support_images) != len(task.support_labels):
            counts = f"{len(task.support_images)} support images and {len(task.support_labels)} labels"
            raise BadInputError(f"{where} has {counts}")
        present = set(task.support_labels.tolist())
        if present != set(task.classes):
            listed = f"lists classes {sorted(task.classes)}"
            raise BadInputError(f"{where} {listed} but its support images are of classes {sorted(present)}")
