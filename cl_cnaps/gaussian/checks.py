"""Checks of tensors, which refuse what the maths cannot work on."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError


def check_features(features: Tensor, what: str, width: int | None = None) -> None:
    """Refuse anything but a finite float matrix (rows x D), of the given width if one is given."""
    if features.ndim != 2:
        raise BadInputError(
            f"{what} features must be a matrix (images x width), got shape {tuple(features.shape)}"
        )
    if not features.is_floating_point():
        raise BadInputError(f"{what} features must be floating point, got {features.dtype}")
    if features.shape[1] == 0:
        raise BadInputError(f"{what} features have width 0")
    if width is not None and features.shape[1] != width:
        raise BadInputError(
            f"{what} features have width {features.shape[1]}, the class statistics have width {width}"
        )
    if not _all_finite(features):
        rows = torch.nonzero(~torch.isfinite(features).all(dim=1)).flatten()
        raise BadInputError(
            f"{what} features contain NaN or Inf, first in row {int(rows[0])} ({len(rows)} rows in all)"
        )


def check_labels(labels: Tensor, n_images: int, n_classes: int) -> None:
    """Refuse labels that are not integers, not one per image, or outside 0..n_classes-1."""
    if n_classes < 1:
        raise BadInputError(f"a task needs at least one class, got n_classes = {n_classes}")
    if labels.ndim != 1 or labels.shape[0] != n_images:
        raise BadInputError(
            f"expected one label per image ({n_images}), got labels of shape {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise BadInputError(f"labels must be integers, got {labels.dtype}")
    if n_images and (int(labels.min()) < 0 or int(labels.max()) >= n_classes):
        raise BadInputError(
            f"labels must lie in 0..{n_classes - 1}, found {int(labels.min())}..{int(labels.max())}"
        )


def check_classes(classes: Tensor, n_classes: int) -> None:
    """Refuse positions of classes that are not integers in 0..n_classes-1."""
    if classes.ndim != 1 or classes.dtype not in (torch.int64, torch.int32):
        raise BadInputError(
            f"classes are chosen by a list of positions, got {classes.dtype} of shape {tuple(classes.shape)}"
        )
    wrong = classes[(classes < 0) | (classes >= n_classes)]
    if len(wrong):
        raise BadInputError(f"there is no class {int(wrong[0])}: positions lie in 0..{n_classes - 1}")


def check_weights(weights: Tensor, n_images: int, n_classes: int | None = None) -> None:
    """Refuse soft labels that are not a finite, non-negative matrix (images x classes)."""
    if weights.ndim != 2 or weights.shape[0] != n_images:
        raise BadInputError(
            f"expected one row of weights per image ({n_images}), got shape {tuple(weights.shape)}"
        )
    if n_classes is not None and weights.shape[1] != n_classes:
        raise BadInputError(f"weights name {weights.shape[1]} classes, the statistics have {n_classes}")
    if not _all_finite(weights) or bool((weights < 0).any()):
        raise BadInputError("weights must be finite and not negative")


def check_counts(counts: Tensor) -> None:
    """Refuse a class without support."""
    empty = torch.nonzero(counts <= 0).flatten().tolist()
    if empty:
        named = ", ".join(str(k) for k in empty[:10]) + (", ..." if len(empty) > 10 else "")
        raise BadInputError(f"no support images for {len(empty)} of {len(counts)} classes: {named}")


def check_finite(values: Tensor, what: str) -> Tensor:
    """Return `values`, or refuse them if any is NaN or Inf."""
    if not _all_finite(values):
        raise BadInputError(
            f"{what} overflowed {values.dtype}: the features are too large; scale them or use float64"
        )
    return values


def _all_finite(values: Tensor) -> bool:
    """Whether no number is NaN or Inf. One of those makes the sum so; only a sum that overflows needs a second look."""
    values = values.detach()
    return math.isfinite(float(values.sum())) or bool(torch.isfinite(values).all())
