"""One round of soft k-means: class parameters from the support and weighted queries, then the queries' logits.

Two ways to the same numbers. `DenseRefit` is differentiable. `SpectralRefit` is fast: each query's weights sum to
one, so the covariance of the whole task is the same in every round. In its eigenbasis the part of Q'_k that classes
share is diagonal, whatever lambda'_k is, and only the class's own rows are left to solve for.

With `mixture`, logits are those of a Gaussian mixture: half the distance, and half of log |Q'_k|.

Legend: as in the package, and R the number of coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.cholesky import PrecisionError, factorise, log_determinants, solve_lower
from cl_cnaps.gaussian.gaussians import Normaliser
from cl_cnaps.gaussian.statistics import Statistics

_CHUNK = 1 << 26
"""Most numbers in one intermediate array: 512 MB."""

_NOTHING = 1e-13
"""A weight so small that leaving the query out stays within the rounding of the sums it would enter."""


@dataclass(frozen=True)
class DenseRefit:
    """Support statistics and queries in coordinates of their span, centred on the mean of all images; float64."""

    counts_K: Tensor
    means_KR: Tensor
    rows_NR: Tensor
    ranks: list[int]
    query_QR: Tensor
    task_covariance_RR: Tensor
    beta: float
    mixture: bool
    outside: int
    """How many directions no image has a part in: there every Q'_k is a multiple of the identity."""
    floor_K: Tensor
    """f_k of reduced scatters, which are rows^T rows + f_k I; zero for others."""
    task_floor: float
    """The same of the task covariance."""

    @staticmethod
    def build(
        support: Statistics, query_QD: Tensor, normaliser: Normaliser, beta: float, *, mixture: bool = False
    ) -> DenseRefit:
        """Prepare the rounds; `query_QD` is float64."""
        support = support.restored()
        n_rows, n_classes = support.rows_RD.shape[0], support.n_classes
        counts_K, old_means_KD = support.counts_K.to(torch.float64), support.means_KD.to(torch.float64)
        total = counts_K.sum() + query_QD.shape[0]
        mean_D = (counts_K @ old_means_KD + query_QD.sum(dim=0)) / total
        vectors = torch.cat([support.rows_RD.to(torch.float64), old_means_KD - mean_D, query_QD - mean_D])
        rows_NR, means_KR, query_QR = torch.split(
            _span_coordinates(vectors), [n_rows, n_classes, query_QD.shape[0]]
        )
        everything = torch.cat([rows_NR, counts_K.sqrt()[:, None] * means_KR, query_QR])
        norm = total - 1 if normaliser == "released-transductive" else total
        levelled = support.levelled().floor_K
        floor_K = torch.zeros_like(counts_K) if levelled is None else levelled.to(counts_K)
        return DenseRefit(
            counts_K,
            means_KR,
            rows_NR,
            torch.bincount(support.row_class_R, minlength=n_classes).tolist(),
            query_QR,
            everything.T @ everything / norm,
            beta,
            mixture,
            query_QD.shape[1] - query_QR.shape[1],
            floor_K,
            float(floor_K.sum() / norm),
        )

    def __call__(self, weights_QK: Tensor) -> Tensor:
        """Logits Q x K under the parameters that these responsibilities give."""
        counts_K, means_KR = _weighted_means(self.counts_K, self.means_KR, self.query_QR, weights_QK)
        width, n_queries = self.query_QR.shape[1], self.query_QR.shape[0]
        step = max(1, _CHUNK // (width * max(width, n_queries)))
        rows = torch.split(self.rows_NR, self.ranks)
        columns = []
        for i in range(0, len(rows), step):
            part = slice(i, i + step)
            columns.append(
                self._logits(part, rows[part], means_KR[part], counts_K[part], weights_QK[:, part])
            )
        return torch.cat(columns, dim=1)

    def _logits(
        self, part: slice, rows: tuple[Tensor, ...], means_KR: Tensor, counts_K: Tensor, weights_QK: Tensor
    ) -> Tensor:
        """Logits for some of the classes, Q x K."""
        rows_KPR = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
        shift_K1R = (self.counts_K[part].sqrt()[:, None] * (self.means_KR[part] - means_KR))[:, None]
        offset_KQR = self.query_QR - means_KR[:, None]
        # sqrt has no derivative at an exactly zero weight; weighting one side of the product needs no root.
        scatter_KRR = (
            rows_KPR.mT @ rows_KPR
            + shift_K1R.mT @ shift_K1R
            + (offset_KQR * weights_QK.T[..., None]).mT @ offset_KQR
        )
        lambda_K = (counts_K / (counts_K + 1))[:, None, None]
        identity = torch.eye(scatter_KRR.shape[-1], dtype=scatter_KRR.dtype, device=scatter_KRR.device)
        floor_K = _floors(self.beta, counts_K, self.floor_K[part], self.task_floor)
        q_KRR = (
            lambda_K / counts_K[:, None, None] * scatter_KRR
            + (1 - lambda_K) * self.task_covariance_RR
            + floor_K[:, None, None] * identity
        )
        factor_KRR = _factorise(q_KRR)
        solved_KRQ = solve_lower(factor_KRR, offset_KQR.mT)
        distances_KQ: Tensor = solved_KRQ.square().sum(dim=1)
        if not self.mixture:
            return -distances_KQ.T
        return -0.5 * (distances_KQ.T + log_determinants(factor_KRR) + self.outside * floor_K.log())


@dataclass(frozen=True)
class SpectralRefit:
    """The same in the eigenbasis of the task covariance; not differentiable."""

    counts_K: Tensor
    means_KR: Tensor
    rows: tuple[Tensor, ...]
    query_QR: Tensor
    task_variances_R: Tensor
    beta: float
    mixture: bool
    outside: int
    floor_K: Tensor
    task_floor: float

    @staticmethod
    @torch.no_grad()
    def build(
        support: Statistics, query_QD: Tensor, normaliser: Normaliser, beta: float, *, mixture: bool = False
    ) -> SpectralRefit:
        """Prepare the rounds; `query_QD` is float64."""
        plain = DenseRefit.build(support, query_QD, normaliser, beta, mixture=mixture)
        variances_R, basis_RR = torch.linalg.eigh(plain.task_covariance_RR)
        return SpectralRefit(
            plain.counts_K,
            plain.means_KR @ basis_RR,
            torch.split(plain.rows_NR @ basis_RR, plain.ranks),
            plain.query_QR @ basis_RR,
            variances_R.clamp_min(0),
            beta,
            mixture,
            plain.outside,
            plain.floor_K,
            plain.task_floor,
        )

    @torch.no_grad()
    def __call__(self, weights_QK: Tensor) -> Tensor:
        """Logits Q x K under the parameters that these responsibilities give."""
        counts_K, means_KR = _weighted_means(self.counts_K, self.means_KR, self.query_QR, weights_QK)
        columns = [self._column(k, counts_K[k], means_KR[k], weights_QK[:, k]) for k in range(len(self.rows))]
        return torch.stack(columns, dim=1)

    def _column(self, k: int, count: Tensor, mean_R: Tensor, weights_Q: Tensor) -> Tensor:
        """Logits of one class, Q."""
        ratio = count / (count + 1)
        floor = _floors(self.beta, count, self.floor_K[k], self.task_floor)
        whiten_R = torch.rsqrt((1 - ratio) * self.task_variances_R + floor)
        offset_QR = self.query_QR - mean_R
        taken = weights_Q > _NOTHING
        shift_1R = (self.counts_K[k].sqrt() * (self.means_KR[k] - mean_R))[None]
        own_PR = torch.cat([self.rows[k], shift_1R, weights_Q[taken].sqrt()[:, None] * offset_QR[taken]])
        own_PR = own_PR * ((ratio / count).sqrt() * whiten_R)
        white_QR = offset_QR * whiten_R
        if own_PR.shape[0] < own_PR.shape[1]:
            factor = _factorise(_plus_identity(own_PR @ own_PR.T))
            inside_PQ = solve_lower(factor, own_PR @ white_QR.T)
            distances_Q: Tensor = white_QR.square().sum(dim=1) - inside_PQ.square().sum(dim=0)
        else:
            factor = _factorise(_plus_identity(own_PR.T @ own_PR))
            distances_Q = solve_lower(factor, white_QR.T).square().sum(dim=0)
        distances_Q = distances_Q.clamp_min(0)
        if not self.mixture:
            return -distances_Q
        determinant = log_determinants(factor) - 2 * whiten_R.log().sum() + self.outside * floor.log()
        return -0.5 * (distances_Q + determinant)


def _weighted_means(
    counts_K: Tensor, means_KR: Tensor, query_QR: Tensor, weights_QK: Tensor
) -> tuple[Tensor, Tensor]:
    """n'_k and mu'_k."""
    new_counts_K = counts_K + weights_QK.sum(dim=0)
    return new_counts_K, (counts_K[:, None] * means_KR + weights_QK.T @ query_QR) / new_counts_K[:, None]


def _floors(beta: float, counts_K: Tensor, floor_K: Tensor, task_floor: float) -> Tensor:
    """What Q'_k has of the identity: beta, and its part of the class's and of the task's reduced scatters."""
    return beta + (floor_K + task_floor) / (counts_K + 1)


def _plus_identity(matrix: Tensor) -> Tensor:
    return matrix + torch.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)


def _factorise(matrices: Tensor) -> Tensor:
    try:
        return factorise(matrices)
    except PrecisionError as error:
        raise BadInputError(
            "the refined class covariances cannot be inverted: scale the features down"
        ) from error


def _span_coordinates(vectors_ND: Tensor) -> Tensor:
    """The vectors in an orthonormal basis of their span, N x N; as they are when that would not save much.

    The basis is held constant for differentiation. That gives the exact gradient of anything that depends on inner
    products of these vectors under matrices made of them: a first-order move of a vector out of the span is
    orthogonal to everything it is multiplied with.
    """
    if 2 * vectors_ND.shape[0] > vectors_ND.shape[1]:
        return vectors_ND
    basis_DR: Tensor = torch.linalg.qr(vectors_ND.detach().T, mode="reduced").Q
    return vectors_ND @ basis_DR
