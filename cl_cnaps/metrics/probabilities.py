"""How good class probabilities are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cl_cnaps.errors import BadInputError

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

BINS = 15
"""Bins of equal width, as in Guo et al., 2017."""


def expected_calibration_error(confidence: Array, right: NDArray[np.bool_], bins: int = BINS) -> float:
    """Return the mean distance between confidence and accuracy over bins of confidence, weighted by their images.

    (Guo et al., "On Calibration of Modern Neural Networks", ICML 2017, eq. 3.)

    Args:
        confidence: N, the largest probability of each image.
        right: N, whether the class with that probability is the image's.
        bins: of equal width in (0, 1].
    """
    if confidence.ndim != 1 or confidence.shape != right.shape or len(right) == 0:
        raise BadInputError(
            f"there is one confidence for each image, not {confidence.shape} for {right.shape}"
        )
    if not (confidence.min() >= 0 and confidence.max() <= 1 + 1e-6):
        raise BadInputError(
            f"a confidence is a probability; they are {confidence.min():g} to {confidence.max():g}"
        )
    number = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.abs(np.bincount(number, weights=right - confidence, minlength=bins))
    return float(gaps.sum() / len(right))


def negative_log_likelihood(log_probabilities: Array, columns: Labels) -> float:
    """Return the mean of -log p of the right class, N x K with its column; infinite where it was held impossible."""
    if log_probabilities.ndim != 2 or len(log_probabilities) != len(columns) or len(columns) == 0:
        raise BadInputError(
            f"log probabilities are N x K for N labels, not {log_probabilities.shape} for {len(columns)}"
        )
    if not (columns.min() >= 0 and columns.max() < log_probabilities.shape[1]):
        raise BadInputError(f"a label lies outside of the {log_probabilities.shape[1]} columns")
    if not np.allclose(np.exp(log_probabilities).sum(axis=1), 1, atol=1e-4):
        raise BadInputError("probabilities must sum to one in every row")
    return float(-log_probabilities[np.arange(len(columns)), columns].mean())
