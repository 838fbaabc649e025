"""Dense float64 form of a reduced scatter: the largest directions, and a multiple of the identity for the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def reduced_scatter(scatter: Array, rank: int) -> Array:
    """The `rank` largest eigenvalues, less the next one, and a multiple of the identity with the sum of the rest."""
    values, vectors = np.linalg.eigh(np.asarray(scatter, np.float64))
    values = values.clip(min=0)
    kept = (values - values[-rank - 1]).clip(min=0)
    rest = (values - kept).sum() / len(values)
    return (vectors * kept) @ vectors.T + rest * np.eye(len(values))
