"""Cholesky factors and triangular systems: the only way anything is inverted here.

Batched LU, behind torch.inverse and torch.linalg.solve, can hang on a CPU with two threads (PyTorch 2.13).
"""

from __future__ import annotations

import torch
from torch import Tensor

_STRIP = 256
"""Columns of a Gram that are computed together."""

_STRIPS_FROM = 2
"""Rows, as a multiple of the columns, from which strips save more than they cost (measured)."""


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


def solve_rows(factor: Tensor, rows: Tensor) -> Tensor:
    """L^-1 of each row, N x D: `solve_lower` of columns, and faster for many rows in float32 (measured)."""
    solution: Tensor = torch.linalg.solve_triangular(factor.mT, rows, upper=True, left=False)
    return solution


def inverses(factors: Tensor) -> Tensor:
    """L^-1 of each of a batch of small lower-triangular factors.

    To solve many small systems for many right-hand sides, products with these are two to three times as fast as
    substitution (measured).
    """
    return solve_lower(factors, torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device))


def gram(rows_RD: Tensor) -> Tensor:
    """rows^T rows, D x D; of many rows in strips, since PyTorch has no product that leaves out the symmetric half."""
    width = rows_RD.shape[1]
    if rows_RD.requires_grad or rows_RD.shape[0] < _STRIPS_FROM * width:
        return rows_RD.T @ rows_RD
    product = rows_RD.new_empty(width, width)
    for start in range(0, width, _STRIP):
        end = min(start + _STRIP, width)
        product[start:, start:end] = rows_RD[:, start:].T @ rows_RD[:, start:end]
        product[start:end, end:] = product[end:, start:end].T
    return product


def log_determinants(factor: Tensor) -> Tensor:
    """log |L L^T| of each lower-triangular factor: one number a matrix."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
