"""Cholesky factors and triangular systems: the only way anything is inverted here.

Batched LU, behind torch.inverse and torch.linalg.solve, can hang on a CPU with two threads (PyTorch 2.13).
"""

from __future__ import annotations

import torch
from torch import Tensor


class PrecisionError(ArithmeticError):
    """A matrix has no Cholesky factor, or none with digits enough, in the precision it was given in."""


def factorise(matrices: Tensor) -> Tensor:
    """Lower-triangular L with L L^T = matrix, for one matrix or a batch."""
    result = torch.linalg.cholesky_ex(matrices)
    if bool(result.info.any()):
        raise PrecisionError
    factor: Tensor = result.L
    return factor


def solve_lower(factor: Tensor, right: Tensor) -> Tensor:
    """X with L X = right, for a lower-triangular L; batches broadcast."""
    solution: Tensor = torch.linalg.solve_triangular(factor, right, upper=False)
    return solution


def log_determinants(factor: Tensor) -> Tensor:
    """log |L L^T| of each lower-triangular factor: one number a matrix."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
