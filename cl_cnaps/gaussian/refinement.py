"""Soft k-means refinement of the class parameters with unlabelled queries (Algorithm alg:iterative).

All vectors involved, the support's rows and means and the queries, span at most R = N + K + Q dimensions. The
loop runs in coordinates of that span, so its matrices are R x R (or D x D, whichever is smaller), and in float64:
an error of 0.01 in a logit of 10,000, all that float32 can promise, would be one of 1 % in a responsibility.

Legend: as in the package, and R the dimension of the span.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_features, check_finite
from cl_cnaps.gaussian.cholesky import PrecisionError, factorise, solve_lower
from cl_cnaps.gaussian.gaussians import Normaliser, estimate
from cl_cnaps.gaussian.mahalanobis import mahalanobis_logits
from cl_cnaps.gaussian.statistics import Statistics

_CHUNK = 1 << 26
"""Most numbers in one intermediate array: 512 MB."""


@dataclass(frozen=True)
class Refinement:
    """What the loop arrived at."""

    logits_QK: Tensor
    steps: int
    """How often the class parameters were estimated anew with the queries in."""


def refine(
    support: Statistics,
    query_QD: Tensor,
    *,
    min_steps: int = 2,
    max_steps: int = 4,
    normaliser: Normaliser = "paper",
    beta: float = 1.0,
    temperature: float | Tensor = 1.0,
    initial_logits_QK: Tensor | None = None,
) -> Refinement:
    """Logits of the queries after refinement; the inputs are left as they are.

    Fit on the support; then repeat {responsibilities of the queries; refit on support and queries} until no query's
    most probable class changes, at least `min_steps` and at most `max_steps` times.

    Args:
        support: statistics of the labelled images (the images themselves are not needed).
        query_QD: features of the whole query set.
        min_steps: refits that are made even when no assignment changes.
        max_steps: refits at the most; 0 gives the support-only logits.
        normaliser: paper, or released-transductive.
        beta: weight of the identity in every covariance.
        temperature: responsibilities are softmax(logits / temperature).
        initial_logits_QK: logits to start from in place of the support-only fit, for stored classes whose Q_k
            was merged over several tasks.
    """
    if not 0 <= min_steps <= max_steps:
        raise BadInputError(f"refinement needs 0 <= min_steps <= max_steps, got {min_steps} and {max_steps}")
    if not float(temperature) > 0:
        raise BadInputError(
            f"the temperature of the responsibilities must be positive, got {float(temperature)}"
        )
    if normaliser == "released-simple":
        raise BadInputError("refinement is defined for the normalisers paper and released-transductive")
    check_features(query_QD, "query", support.width)
    dtype = query_QD.dtype
    query_QD = query_QD.to(torch.float64)
    if initial_logits_QK is None:
        logits_QK = mahalanobis_logits(estimate(support, normaliser, beta), query_QD)
    else:
        logits_QK = _checked(initial_logits_QK, query_QD.shape[0], support.n_classes).to(torch.float64)
    if max_steps == 0 or query_QD.shape[0] == 0:
        return Refinement(logits_QK.to(dtype), 0)

    problem = _Problem.build(support, query_QD, normaliser, beta)
    assigned_Q = logits_QK.argmax(dim=1)
    for step in range(1, max_steps + 1):
        weights_QK = torch.softmax(logits_QK / temperature, dim=1)
        logits_QK = problem.refit(weights_QK)
        before_Q, assigned_Q = assigned_Q, logits_QK.argmax(dim=1)
        if step >= min_steps and bool((before_Q == assigned_Q).all()):
            break
    return Refinement(check_finite(logits_QK, "the refined distance").to(dtype), step)


@dataclass(frozen=True)
class _Problem:
    """Support statistics and queries in coordinates of their span, centred on the mean of all images."""

    counts_K: Tensor
    means_KR: Tensor
    rows_NR: Tensor
    ranks: list[int]
    query_QR: Tensor
    task_covariance_RR: Tensor
    beta: float

    @staticmethod
    def build(support: Statistics, query_QD: Tensor, normaliser: Normaliser, beta: float) -> _Problem:
        n_rows, n_classes = support.rows_RD.shape[0], support.n_classes
        counts_K, old_means_KD = support.counts_K.to(torch.float64), support.means_KD.to(torch.float64)
        total = counts_K.sum() + query_QD.shape[0]
        # Each query's weights sum to one, so the mean and the covariance of the whole task stay the same all along.
        mean_D = (counts_K @ old_means_KD + query_QD.sum(dim=0)) / total
        vectors = torch.cat([support.rows_RD.to(torch.float64), old_means_KD - mean_D, query_QD - mean_D])
        rows_NR, means_KR, query_QR = torch.split(
            _span_coordinates(vectors), [n_rows, n_classes, query_QD.shape[0]]
        )
        between_KR = counts_K.sqrt()[:, None] * means_KR
        everything = torch.cat([rows_NR, between_KR, query_QR])
        norm = total - 1 if normaliser == "released-transductive" else total
        return _Problem(
            counts_K,
            means_KR,
            rows_NR,
            torch.bincount(support.row_class_R, minlength=n_classes).tolist(),
            query_QR,
            everything.T @ everything / norm,
            beta,
        )

    def refit(self, weights_QK: Tensor) -> Tensor:
        """One round: class parameters from support and weighted queries, then the queries' logits."""
        counts_K = self.counts_K + weights_QK.sum(dim=0)
        means_KR = (self.counts_K[:, None] * self.means_KR + weights_QK.T @ self.query_QR) / counts_K[:, None]
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
        q_KRR = (
            lambda_K / counts_K[:, None, None] * scatter_KRR
            + (1 - lambda_K) * self.task_covariance_RR
            + self.beta * identity
        )
        solved_KRQ = solve_lower(_factorise(q_KRR), offset_KQR.mT)
        return -solved_KRQ.square().sum(dim=1).T


def _checked(logits_QK: Tensor, n_queries: int, n_classes: int) -> Tensor:
    if logits_QK.shape != (n_queries, n_classes):
        raise BadInputError(
            f"initial logits must be queries x classes, {n_queries} x {n_classes}, got {tuple(logits_QK.shape)}"
        )
    if not bool(torch.isfinite(logits_QK).all()):
        raise BadInputError("initial logits contain NaN or Inf")
    return logits_QK


def _factorise(matrices: Tensor) -> Tensor:
    try:
        return factorise(matrices)
    except PrecisionError as error:
        raise BadInputError(
            "the refined class covariances cannot be inverted: scale the features down"
        ) from error


def _span_coordinates(vectors_ND: Tensor) -> Tensor:
    """The vectors in an orthonormal basis of their span, N x min(N, D).

    The basis is held constant for differentiation. That gives the exact gradient of anything that depends on inner
    products of these vectors under matrices made of them: a first-order move of a vector out of the span is
    orthogonal to everything it is multiplied with.
    """
    if vectors_ND.shape[0] >= vectors_ND.shape[1]:
        return vectors_ND
    basis_DR: Tensor = torch.linalg.qr(vectors_ND.detach().T, mode="reduced").Q
    return vectors_ND @ basis_DR
