"""Dense float64 form of a reduced scatter: the largest directions, and a multiple of the identity for the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def reduced_scatter(scatter: Array, rank: int) -> Array:
    """The `rank` largest eigenvalues with their eigenvectors; every other direction gets the mean of the others."""
    values, vectors = np.linalg.eigh(np.asarray(scatter, np.float64))
    values = values.clip(min=0)
    values[: len(values) - rank] = values[: len(values) - rank].mean()
    return (vectors * values) @ vectors.T
