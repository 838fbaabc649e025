"""Dense float64 form of a reduced scatter: the largest directions, and a multiple of the identity for the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def reduced_scatter(scatter: Array, rank: int) -> Array:
    """The `rank` largest eigenvalues with their eigenvectors, and a multiple of the identity with the others' sum."""
    values, vectors = np.linalg.eigh(np.asarray(scatter, np.float64))
    values, left = values.clip(min=0), len(values) - rank
    rest = values[:left].sum() / len(values)
    values[:left] = 0
    return (vectors * values) @ vectors.T + rest * np.eye(len(values))
