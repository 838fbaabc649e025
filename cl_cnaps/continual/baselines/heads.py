"""The two heads in closed form, ridge regression and LDA, and the sums of features that both are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.baselines.settings import Shrinkage
from cl_cnaps.errors import BadInputError, ClCnapsError


class Moments:
    """Running sums over labelled vectors, in float64. Neither batches nor their order change them.

    Shape legend: N vectors so far, M numbers in each, C columns (the largest class column seen, plus one).

    The Gram matrix G = sum of h h^T is M x M. While there are no more vectors than M, the vectors themselves and
    their N x N products take less time, and have the same content: the dual form.
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
        if self.gram_MM is None and len(self.rows_NM) + len(new) <= self.width:
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
        return F.one_hot(self.labels_N, len(self.counts_C)).to(self.products_NN)

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


STRENGTHS = tuple(10.0**power for power in range(-8, 9))
"""RanPAC's candidates for the strength of the ridge."""

SHRINKAGES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Candidates for the weight of the identity in the covariance of LDA."""

HELD_OUT = 0.2
"""Part of a task's support images that is held out to compare them, as in RanPAC."""


def ridge_weights(moments: Moments, strength: float) -> Tensor:
    """Return (G + l I)^-1 Q, M x C, where Q = sum of h y^T are the class sums."""
    if moments.gram_MM is not None:
        return solve_positive(moments.gram_MM, strength, moments.sums_CM.T)
    duals_NC = solve_positive(moments.products_NN, strength, moments.one_hot_NC())
    return moments.rows_NM.double().T @ duals_NC


def best_strength(
    train: Moments, rows_HM: Tensor, labels_H: Tensor, strengths: Sequence[float] = STRENGTHS
) -> tuple[float, float]:
    """Return the strength whose weights from `train` have the least squared error on held-out vectors, and that error.

    One symmetric eigendecomposition serves all strengths.
    """
    rows_HM = rows_HM.double()
    if train.gram_MM is not None:
        values, vectors = torch.linalg.eigh(train.gram_MM)
        left_HK, right_KC = rows_HM @ vectors, vectors.T @ train.sums_CM.T
    else:
        values, vectors = torch.linalg.eigh(train.products_NN)
        left_HK = rows_HM @ train.rows_NM.double().T @ vectors
        right_KC = vectors.T @ train.one_hot_NC()
    columns = max(len(train.counts_C), int(labels_H.max()) + 1)
    right_KC = F.pad(right_KC, (0, columns - len(train.counts_C)))
    targets_HC = F.one_hot(labels_H, columns)
    values = values.clamp(min=0)[:, None]
    return _least(
        (float((left_HK @ (right_KC / (values + strength)) - targets_HC).square().sum()), strength)
        for strength in strengths
    )


def best_shrinkage(
    train: Moments, rows_HM: Tensor, labels_H: Tensor, shrinkages: Sequence[float] = SHRINKAGES
) -> tuple[float, float]:
    """Return the shrinkage whose LDA of `train` gives held-out vectors the largest likelihood, and its negative log.

    Vectors of classes that `train` does not have are left out.
    """
    known = labels_H < len(train.counts_C)
    known &= train.counts_C[labels_H.clamp(max=len(train.counts_C) - 1)] > 0
    rows_HM, labels_H = rows_HM[known].double(), labels_H[known]

    def error(shrinkage: float) -> float:
        weights_MC, biases_C = discriminant_weights(train, shrinkage)
        scores_HC = (rows_HM @ weights_MC + biases_C).masked_fill(train.counts_C == 0, -torch.inf)
        return float(F.cross_entropy(scores_HC, labels_H, reduction="sum"))

    return _least((error(shrinkage), shrinkage) for shrinkage in shrinkages)


def _least(errors: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the value of the least error, the first of equal ones, and that error."""
    error, value = min(errors, key=lambda pair: pair[0])
    return value, error


def held_out_count(n: int) -> int:
    """Return how many of n images to hold out: a fifth, at least one, but not the only one."""
    return max(int(n > 1), round(HELD_OUT * n))


def oas_shrinkage(trace: float, squared_norm: float, n: int, width: int) -> float:
    """Return the weight of the identity that oracle approximating shrinkage gives (Chen et al. 2010, eq. 23).

    As `sklearn.covariance.oas` on centred vectors, but from the covariance alone, which is what a stream keeps.

    Args:
        trace: of the covariance S.
        squared_norm: the trace of S S.
        n: vectors that S was made of.
        width: numbers in each.
    """
    distance = (n + 1) * (squared_norm - trace**2 / width)
    return 1.0 if distance <= 0 else min(1.0, (squared_norm + trace**2) / distance)


def discriminant_weights(moments: Moments, shrinkage: Shrinkage) -> tuple[Tensor, Tensor]:
    """Return weights L m_c (M x C) and biases -m_c^T L m_c / 2 (C); L is the inverse of the shrunk covariance."""
    means_CM = moments.means_CM
    weights_MC = _primal(moments, shrinkage) if moments.gram_MM is not None else _dual(moments, shrinkage)
    return weights_MC, -(means_CM * weights_MC.T).sum(dim=1) / 2


def _parts(scatter: Tensor, n: int, width: int, shrinkage: Shrinkage) -> tuple[float, float]:
    """Return a and b of the covariance a X^T X + b I, from X^T X or X X^T, which share trace and norm."""
    if shrinkage == "identity":
        return 1 / n, 1.0
    trace = float(scatter.diagonal().sum()) / n
    weight = shrinkage
    if isinstance(weight, str):
        weight = oas_shrinkage(trace, (float(torch.linalg.matrix_norm(scatter)) / n) ** 2, n, width)
    # One image a class has no variance: any multiple of the identity then gives the nearest mean.
    return (1 - weight) / n, weight * trace / width if trace > 0 else 1.0


def _primal(moments: Moments, shrinkage: Shrinkage) -> Tensor:
    assert moments.gram_MM is not None
    sums, means = moments.sums_CM, moments.means_CM
    scatter_MM = moments.gram_MM - means.T @ sums
    a, b = _parts(scatter_MM, moments.n, moments.width, shrinkage)
    return solve_positive(a * scatter_MM, b, means.T)


def _dual(moments: Moments, shrinkage: Shrinkage) -> Tensor:
    """(a X^T X + b I)^-1 = (I - X^T (X X^T + b/a I)^-1 X) / b, with X the rows less their class means."""
    one_hot_NC = moments.one_hot_NC()
    average_CN = (one_hot_NC / moments.counts_C.clamp(min=1)).T

    def centred(values_NK: Tensor) -> Tensor:
        return values_NK - one_hot_NC @ (average_CN @ values_NK)

    products_NN = centred(centred(moments.products_NN).T)
    a, b = _parts(products_NN, moments.n, moments.width, shrinkage)
    means_MC = moments.means_CM.T
    if a == 0:
        return means_MC / b
    along_NC = centred(moments.products_NN @ average_CN.T)
    duals_NC = solve_positive(products_NN, b / a, along_NC)
    return (means_MC - moments.rows_NM.double().T @ centred(duals_NC)) / b
