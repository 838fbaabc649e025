"""How good class probabilities are, and which classes are taken for which."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cl_cnaps.errors import BadInputError

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

BINS = 15
"""Bins of equal width, as in Guo et al., 2017."""


def expected_calibration_error(probabilities: Array, labels: Labels, bins: int = BINS) -> float:
    """Return the mean distance between confidence and accuracy over bins of confidence, weighted by their images.

    (Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, eq. 3.)

    Args:
        probabilities: N x K, rows that sum to one.
        labels: N columns.
        bins: of equal width in (0, 1].
    """
    _check(probabilities, labels)
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    number = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.abs(np.bincount(number, weights=right - confidence, minlength=bins))
    return float(gaps.sum() / len(labels))


def negative_log_likelihood(probabilities: Array, labels: Labels) -> float:
    """Return the mean of -log p of the right class; infinite where it was held to be impossible."""
    _check(probabilities, labels)
    with np.errstate(divide="ignore"):
        return float(-np.log(probabilities[np.arange(len(labels)), labels]).mean())


def confusion_matrix(predicted: Labels, labels: Labels, classes: int) -> NDArray[np.int64]:
    """Return K x K counts: row the right class, column the predicted one."""
    if predicted.shape != labels.shape:
        raise BadInputError(f"{len(predicted)} predictions for {len(labels)} labels")
    for what, found in (("prediction", predicted), ("label", labels)):
        if len(found) and not (found.min() >= 0 and found.max() < classes):
            raise BadInputError(f"a {what} lies outside of {classes} classes: {found.min()} to {found.max()}")
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def _check(probabilities: Array, labels: Labels) -> None:
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or len(labels) == 0:
        raise BadInputError(
            f"probabilities are N x K for N labels, not {probabilities.shape} for {len(labels)}"
        )
    if not (labels.min() >= 0 and labels.max() < probabilities.shape[1]):
        raise BadInputError(f"a label lies outside of the {probabilities.shape[1]} columns")
    inside = (probabilities >= 0).all() and np.allclose(probabilities.sum(axis=1), 1, atol=1e-4)
    if not inside:
        raise BadInputError("probabilities must not be negative and must sum to one in every row")
