"""What Avalanche hands out, as the models read it: images in any form, and the tasks that they belong to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from cl_cnaps.data.source import as_tensor, upright
from cl_cnaps.errors import BadInputError

_KNOWN = (
    # On import: GEM's solver, which no baseline here uses.
    "no QP solver found",
    # The evaluator is left empty on purpose: accuracies are measured outside.
    "No loggers specified",
    # Avalanche's FeCAM copies a tensor with torch.tensor.
    "To copy construct from a tensor",
)


@contextmanager
def quiet_avalanche() -> Iterator[None]:
    """Silence the warnings Avalanche is known to give, and no others, while the block runs."""
    with warnings.catch_warnings():
        for message in _KNOWN:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        yield


_ROUNDING = 1e-3
"""How far a value may lie outside [0, 1] once a normalisation is undone."""


@dataclass(frozen=True)
class Normalisation:
    """What a benchmark's transforms did to images in [0, 1]: (x - mean) / std, per channel."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def undo(self, images: Tensor) -> Tensor:
        """Return floats in [0, 1], N x C x H x W or C x H x W."""
        mean, std = (images.new_tensor(part)[:, None, None] for part in (self.mean, self.std))
        return images * std + mean


PLAIN = Normalisation()


def as_images(batch: Tensor, normalisation: Normalisation = PLAIN) -> Tensor:
    """Return a batch as uint8 N x 3 x H x W, from uint8 or floats, grey or RGB; features N x D stay."""
    if batch.ndim == 2 and batch.is_floating_point():
        return batch
    if batch.ndim == 3:
        batch = batch[:, None]
    if batch.ndim != 4 or batch.shape[1] not in (1, 3):
        raise BadInputError(f"expected images N x 3 x H x W (or one channel), got shape {tuple(batch.shape)}")
    if batch.is_floating_point():
        batch = (_checked(normalisation.undo(batch), normalisation) * 255).round().to(torch.uint8)
    return batch.expand(-1, 3, -1, -1)


def _checked(images: Tensor, normalisation: Normalisation) -> Tensor:
    low, high = float(images.min()), float(images.max())
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # so written, NaN is refused too
        found = "" if normalisation == PLAIN else f" after undoing the benchmark's {normalisation}"
        raise BadInputError(
            f"expected images in [0, 1], found values from {low:.2f} to {high:.2f}{found}: the model does its own "
            "normalisation. Give the benchmark train_transform and eval_transform without one, such as ToTensor() for "
            "PIL images and None for tensors"
        )
    return images.clamp(0, 1)


def normalisation_of(dataset: Any) -> Normalisation:
    """Return the normalisation that an Avalanche data set applies now, so that it can be undone.

    Looks for transforms with the name of torchvision's `Normalize` in the current group and in what it wraps.
    """
    found = {tuple(chain) for chain in _chains(getattr(dataset, "_flat_data", dataset))}
    if len(found) > 1:
        raise BadInputError(
            "the images of one experience are normalised in different ways; give the benchmark transforms without "
            "normalisation: the model does its own"
        )
    chain = next(iter(found), ())
    if len(chain) > 1:
        raise BadInputError(f"images are normalised {len(chain)} times; leave it to the model")
    return chain[0] if chain else PLAIN


def _chains(dataset: Any) -> Iterator[list[Normalisation]]:
    """Yield the normalisations that the images of every data set below this one go through."""
    own: list[Normalisation] = []
    for name in ("_frozen_transform_groups", "_transform_groups"):
        groups = getattr(dataset, name, None)
        if groups is not None:
            own += _normalisations(groups[groups.current_group])
    for name in ("transform", "transforms"):
        before = [] if own else _normalisations(getattr(dataset, name, None))
        own += before
    inner = getattr(dataset, "_datasets", None)
    if inner is None:
        wrapped = getattr(dataset, "dataset", getattr(dataset, "_flat_data", None))
        inner = [] if wrapped is None or wrapped is dataset else [wrapped]
    if not inner:
        yield own
    for part in inner:
        for chain in _chains(part):
            yield chain + own


def _normalisations(transform: Any) -> list[Normalisation]:
    if type(transform).__name__ == "Normalize":
        mean, std = (
            torch.as_tensor(part, dtype=torch.float64).flatten().tolist()
            for part in (transform.mean, transform.std)
        )
        return [Normalisation(tuple(mean), tuple(std))]
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, list | tuple | torch.nn.Sequential | torch.nn.ModuleList):
        # Of a pair, the second is for labels; it has no normalisation.
        return [found for one in inner for found in _normalisations(one)]
    return [] if getattr(transform, "transform", None) is None else _normalisations(transform.transform)


@dataclass(frozen=True)
class Collate:
    """Puts items together; images that cannot be stacked (PIL, or of different sizes) as uint8 of one size."""

    usual: Callable[[list[Any]], Any]
    size: int
    normalisation: Normalisation

    def __call__(self, items: list[Any]) -> Any:
        """Return a batch whose first part is a tensor of images."""
        images = [item[0] for item in items]
        alike = all(isinstance(image, Tensor) for image in images) and len({i.shape for i in images}) == 1
        if not alike:
            items = [(self._pixels(image), *item[1:]) for image, item in zip(images, items, strict=True)]
        return self.usual(items)

    def _pixels(self, image: Any) -> Tensor:
        if isinstance(image, Image.Image):
            return as_tensor(upright(image), self.size)
        if isinstance(image, Tensor) and image.is_floating_point():
            image = _checked(self.normalisation.undo(image), self.normalisation)
        return _resized(image, self.size)[0]


def plain_loader(
    dataset: Any, batch_size: int, options: dict[str, Any], size: int | None = None
) -> DataLoader[Any]:
    """Return a loader that gives every image once, in the order of the data set.

    Args:
        dataset: of an experience.
        batch_size: images a batch.
        options: of the loader, such as `num_workers`; what would change the images or their number is refused.
        size: side of images that have to be resized to be stacked; None if nothing is ever.
    """
    if options.get("drop_last"):
        raise BadInputError("every image is learned once: leave drop_last out")
    keep = ("num_workers", "pin_memory", "persistent_workers")
    chosen = {key: options[key] for key in keep if options.get(key) is not None}
    collate: Callable[..., Any] = getattr(dataset, "collate_fn", None) or torch.utils.data.default_collate
    if size is not None:
        collate = Collate(collate, size, normalisation_of(dataset))
    return DataLoader(dataset, batch_size=batch_size, shuffle=False, collate_fn=collate, **chosen)


def joined_images(batches: Sequence[Any], normalisation: Normalisation, size: int | None) -> Tensor:
    """Return the images of all batches as uint8 N x 3 x H x W, resized to `size` where their sizes differ."""
    parts = [as_images(batch[0], normalisation) for batch in batches]
    if size is not None and len({part.shape[1:] for part in parts}) > 1:
        parts = [_resized(part, size) for part in parts]
    return torch.cat(parts)


def _resized(images: Any, size: int) -> Tensor:
    """Return uint8 images N x 3 x size x size of one image or many."""
    from cl_cnaps.image_inputs import pictures, pixels  # for images of mixed sizes alone, which are rare

    return pixels(pictures(images), size)


def experience_number(experience: Any) -> int:
    """Return an experience's position in its stream; of a part of one the position of the whole."""
    try:
        whole = getattr(experience, "origin_experience", None) or experience
    except ValueError:  # Avalanche hides it in streams without task boundaries
        whole = experience
    return int(whole.current_experience)


def stream_length(experience: Any) -> int:
    """Return how many experiences the stream of this one has; 0 if that is not known."""
    stream = getattr(experience, "origin_stream", None)
    return len(stream) if stream is not None and hasattr(stream, "__len__") else 0


def has_task_labels(experience: Any) -> bool:
    """Whether the experiences of this one's stream differ in their task labels, or it is the only one."""
    if not hasattr(experience, "task_labels"):
        return False
    if stream_length(experience) < 2:
        return True
    return len({label for one in experience.origin_stream for label in one.task_labels}) > 1


def restarts_class_ids(experience: Any) -> bool:
    """Whether the benchmark says that class ids start from zero in each experience."""
    return bool(getattr(_benchmark(experience), "class_ids_from_zero_in_each_exp", False))


def class_count(experience: Any) -> int:
    """Return how many classes the benchmark has; 0 if that is not known."""
    return int(getattr(_benchmark(experience), "n_classes", 0))


def _benchmark(experience: Any) -> Any:
    stream = getattr(experience, "origin_stream", None)
    return getattr(experience, "benchmark", None) or getattr(stream, "benchmark", None)


def by_task(tasks: Tensor, answer: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Return the answers to all images, in order.

    Args:
        tasks: of every image.
        answer: logits of the images in some rows, which are of one task; columns that others have get a low score.
    """
    rows = {task: torch.nonzero(tasks == task).flatten() for task in torch.unique(tasks).tolist()}
    found = [answer(own, task) for task, own in rows.items()]
    width = max(part.shape[1] for part in found)
    low = [part.min(dim=1, keepdim=True).values - 100 for part in found]
    full = [
        torch.cat([part, fill.expand(-1, width - part.shape[1])], dim=1)
        for part, fill in zip(found, low, strict=True)
    ]
    return torch.cat(full)[torch.argsort(torch.cat(list(rows.values())))]
