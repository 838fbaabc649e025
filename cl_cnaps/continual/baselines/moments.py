"""Counts, sums and second moments of labelled vectors: all that ridge regression and LDA need."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError, ClCnapsError


class Moments:
    """Running sums over labelled vectors, in float64. Neither batches nor their order change them.

    Shape legend: N vectors so far, M numbers in each, C columns (the largest class column seen, plus one).

    The Gram matrix G = sum of h h^T is M x M. While there are fewer vectors than M, the vectors themselves and
    their N x N products take less memory and less time, and have the same content: the dual form.
    """

    def __init__(self, width: int, device: torch.device | str = "cpu", *, second: bool = True) -> None:
        self.width = width
        self.second = second
        """Whether second moments are kept; a head on class means needs none."""
        self.counts_C = torch.zeros(0, dtype=torch.int64, device=device)
        self.sums_CM = torch.zeros(0, width, dtype=torch.float64, device=device)
        self.gram_MM: Tensor | None = None
        """None while the dual form is kept."""
        self.rows_NM = torch.zeros(0, width, device=device)
        self.labels_N = torch.zeros(0, dtype=torch.int64, device=device)
        self.products_NN = torch.zeros(0, 0, dtype=torch.float64, device=device)

    def add(self, vectors_NM: Tensor, labels_N: Tensor) -> None:
        """Add labelled vectors."""
        if len(vectors_NM) != len(labels_N) or vectors_NM.ndim != 2 or vectors_NM.shape[1] != self.width:
            raise BadInputError(
                f"{len(labels_N)} labels need vectors {len(labels_N)} x {self.width}, got {tuple(vectors_NM.shape)}"
            )
        if len(labels_N) == 0:
            return
        labels_N, new = labels_N.to(self.counts_C.device), vectors_NM.to(self.counts_C.device).double()
        more = int(labels_N.max()) + 1 - len(self.counts_C)
        if more > 0:
            self.counts_C = torch.cat([self.counts_C, self.counts_C.new_zeros(more)])
            self.sums_CM = torch.cat([self.sums_CM, self.sums_CM.new_zeros(more, self.width)])
        self.counts_C += torch.bincount(labels_N, minlength=len(self.counts_C))
        self.sums_CM.index_add_(0, labels_N, new)
        if not self.second:
            return
        if self.gram_MM is None and len(self.rows_NM) + len(new) < self.width:
            self._add_rows(vectors_NM.to(self.rows_NM), new, labels_N)
            return
        if self.gram_MM is None:
            old = self.rows_NM.double()
            self.gram_MM = old.T @ old
            self.rows_NM, self.labels_N = self.rows_NM[:0].clone(), self.labels_N[:0].clone()
            self.products_NN = self.products_NN[:0, :0].clone()
        self.gram_MM.addmm_(new.T, new)

    def _add_rows(self, rows: Tensor, new: Tensor, labels: Tensor) -> None:
        across = self.rows_NM.double() @ new.T
        self.products_NN = torch.cat(
            [torch.cat([self.products_NN, across], dim=1), torch.cat([across.T, new @ new.T], dim=1)]
        )
        self.rows_NM, self.labels_N = torch.cat([self.rows_NM, rows]), torch.cat([self.labels_N, labels])

    @property
    def n(self) -> int:
        """Vectors added so far."""
        return int(self.counts_C.sum())

    @property
    def means_CM(self) -> Tensor:
        """Class means; zero for a column without vectors."""
        return self.sums_CM / self.counts_C.clamp(min=1)[:, None]

    def one_hot_NC(self) -> Tensor:
        """Targets of the rows that the dual form keeps."""
        columns = len(self.counts_C)
        return torch.nn.functional.one_hot(self.labels_N, columns).to(self.products_NN)

    def nbytes(self) -> int:
        """Memory taken."""
        kept = [self.counts_C, self.sums_CM, self.rows_NM, self.labels_N, self.products_NN]
        kept += [] if self.gram_MM is None else [self.gram_MM]
        return sum(tensor.nbytes for tensor in kept)


def solve_positive(matrix: Tensor, ridge: float, right: Tensor) -> Tensor:
    """Solve (matrix + ridge I) x = right for a positive semi-definite matrix.

    A ridge below the matrix's rounding error counts as that error, which keeps the matrix positive.
    """
    size = len(matrix)
    rounding = size * torch.finfo(matrix.dtype).eps * float(matrix.diagonal().max().clamp(min=0))
    shifted = matrix.clone()
    shifted.diagonal().add_(max(ridge, rounding, torch.finfo(matrix.dtype).tiny))
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if bool(failed):
        raise ClCnapsError(
            f"a {size} x {size} matrix with ridge {ridge:g} is not positive: the features are not finite"
        )
    return torch.cholesky_solve(right, factor)
