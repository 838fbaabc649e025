"""Squared Mahalanobis distances to factored Gaussians, and their log-determinants.

Classes that share the same base B = beta I + sum_t w_t shared_t^T shared_t (all classes of a task with equal
shots do) are solved together: the base once, then each class as a low-rank update of it. The Woodbury identity
needs a Cholesky factor of the size of the rank only. When a rank reaches the feature width that no longer pays, and
the dense form is taken instead.

    Q_k = B + own_k^T own_k
    y^T Q_k^-1 y = y^T B^-1 y - |L_k^-1 own_k B^-1 y|^2,   L_k L_k^T = I + own_k B^-1 own_k^T
    log |Q_k| = log |B| + log |L_k L_k^T|

The difference in the second line loses as many digits as own_k is larger than B, and the factor of B as many as B is
larger than beta. Where float32 has not so many to lose, everything is done again in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_features, check_finite
from cl_cnaps.gaussian.cholesky import (
    PrecisionError,
    factorise,
    gram,
    inverses,
    log_determinants,
    solve_lower,
    solve_rows,
)
from cl_cnaps.gaussian.gaussians import Gaussians

_CHUNK = 1 << 26
"""Most numbers in one intermediate array: 256 MB in float32."""

_KEPT_GRAMS = 1 << 28
"""Most numbers in Grams of shared rows that are kept for the next group of classes: 1 GB in float32."""

_LOSS_IN_FLOAT32 = 300.0
"""Most that one part may be larger than what it is subtracted from or added to: 1e-4 / 6e-8, with room for rounding."""

_DENSE_FROM = 0.5
"""Base rank, as a share of the feature width, from which the dense form is cheaper (measured)."""


def mahalanobis_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """logit_k(z) = -(z - mu_k)^T Q_k^-1 (z - mu_k), shape Q x K (eq. simple-cnaps-mahalanobis-classifier)."""
    return -squared_distances(gaussians, query_QD)


def squared_distances(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """(z - mu_k)^T Q_k^-1 (z - mu_k) for every query and class, shape Q x K, in the queries' dtype."""
    return solve(gaussians, query_QD).distances_QK


@dataclass(frozen=True)
class Solution:
    """What the factors of the Q_k give: squared distances, and log |Q_k|."""

    distances_QK: Tensor
    log_determinants_K: Tensor


def solve(gaussians: Gaussians, query_QD: Tensor) -> Solution:
    """Squared distances Q x K and log-determinants K, from the same factors, in the queries' dtype."""
    check_features(query_QD, "query", gaussians.width)
    dtype = query_QD.dtype
    wide = torch.promote_types(torch.promote_types(dtype, gaussians.means_KD.dtype), torch.float32)
    try:
        found = _solve(gaussians, query_QD, wide)
    except PrecisionError:
        # Without digits to spare in float32, float64 has them.
        try:
            found = _solve(gaussians, query_QD, torch.float64)
        except PrecisionError as error:
            raise BadInputError(
                f"the class covariances cannot be inverted: variances are too large against beta = {gaussians.beta}; "
                "scale the features down"
            ) from error
    return Solution(
        check_finite(found.distances_QK.clamp_min(0).to(dtype), "the Mahalanobis distance"),
        found.log_determinants_K.to(dtype),
    )


def _solve(gaussians: Gaussians, query_QD: Tensor, dtype: torch.dtype) -> Solution:
    if gaussians.n_classes == 0:
        return Solution(query_QD.new_zeros(query_QD.shape[0], 0), query_QD.new_zeros(0))
    rows = OwnRows(gaussians.rows_RD, gaussians.row_class_R, gaussians.n_classes)
    groups = _groups(gaussians)
    grams: dict[tuple[int, bool], Tensor] = {}
    parts = []
    for classes in groups:
        base = _base(gaussians, int(classes[0]), rows.longest(classes), dtype, grams)
        parts.append(_solve_group(gaussians.means_KD[classes], rows, classes, base, query_QD))
    if len(parts) == 1:  # all classes, in their order
        return Solution(parts[0].distances_QK.to(dtype), parts[0].log_determinants_K.to(dtype))
    order = torch.argsort(torch.cat(groups))
    return Solution(
        torch.cat([part.distances_QK.to(dtype) for part in parts], dim=1)[:, order],
        torch.cat([part.log_determinants_K.to(dtype) for part in parts])[order],
    )


def _groups(gaussians: Gaussians) -> list[Tensor]:
    """Classes that have the same base, and so are solved together."""
    weights = gaussians.base_weight_KT
    every = torch.arange(gaussians.n_classes, device=weights.device)
    if not weights.shape[1]:  # nothing shared: beta I is everyone's base
        return [every]
    if weights.requires_grad:  # equal numbers, but gradients of their own
        return list(every[:, None])
    if bool((weights == weights[0]).all()):
        return [every]
    _, group_K = torch.unique(weights, dim=0, return_inverse=True)
    by_group = torch.argsort(group_K, stable=True)
    return list(torch.split(by_group, torch.bincount(group_K).tolist()))


class OwnRows:
    """The classes' own rows, handed out as K x P x D blocks, padded with zero rows (which change nothing)."""

    def __init__(
        self, rows_RD: Tensor, row_class_R: Tensor, n_classes: int, scale_R: Tensor | None = None
    ) -> None:
        self._rows_RD, self._scale_R = rows_RD, scale_R
        self._ranks_K = torch.bincount(row_class_R, minlength=n_classes)
        self._starts_K = torch.cumsum(self._ranks_K, 0) - self._ranks_K

    def longest(self, classes: Tensor) -> int:
        """Most rows that any of these classes has."""
        return int(self._ranks_K[classes].max())

    def block(self, classes: Tensor, length: int) -> Tensor:
        """The rows of these classes as they are kept, K x P x D with P = `length`."""
        places_KP, real_KP = self._places(classes, length)
        rows_KPD = self._rows_RD[places_KP]
        return rows_KPD if bool(real_KP.all()) else rows_KPD * real_KP[..., None]

    def scales(self, classes: Tensor, length: int, dtype: torch.dtype) -> Tensor:
        """What these rows are multiplied by, K x P."""
        places_KP, real_KP = self._places(classes, length)
        return real_KP.to(dtype) if self._scale_R is None else self._scale_R[places_KP].to(dtype)

    def _places(self, classes: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Where the rows are, and which are of the class."""
        places_KP = self._starts_K[classes][:, None] + torch.arange(length, device=classes.device)
        real_KP = places_KP < (self._starts_K + self._ranks_K)[classes][:, None]
        return places_KP.clamp_max(self._rows_RD.shape[0] - 1), real_KP


@dataclass(frozen=True)
class _Base:
    """An inner product u^T B^-1 v, as sum_e sign_e phi(u)_e phi(v)_e of mapped vectors."""

    cholesky: Tensor
    rows_RD: Tensor | None
    """Rows of the base where the low-rank form is used, None where the dense form is."""
    beta: float

    @property
    def dtype(self) -> torch.dtype:
        return self.cholesky.dtype

    def log_determinant(self, width: int) -> Tensor:
        """log |B|; in the low-rank form by the matrix determinant lemma."""
        missing = width - self.cholesky.shape[-1]
        return log_determinants(self.cholesky) + missing * math.log(self.beta)

    def map(self, vectors: Tensor) -> Tensor:
        """phi of each vector in the last dimension: ... x D to ... x E."""
        flat = vectors.to(self.dtype).reshape(-1, vectors.shape[-1])
        if self.rows_RD is None:
            mapped = solve_rows(self.cholesky, flat)
        else:
            inside = solve_lower(self.cholesky, (flat @ self.rows_RD.T).T).T
            mapped = torch.cat([flat, inside], dim=1)
            if self.beta != 1:
                mapped = mapped * self.beta**-0.5
        return mapped.reshape(*vectors.shape[:-1], mapped.shape[-1])

    def signed(self, mapped: Tensor) -> Tensor:
        """Mapped vectors with the signs of the inner product put on."""
        if self.rows_RD is None:
            return mapped
        width = self.rows_RD.shape[1]
        return torch.cat([mapped[..., :width], -mapped[..., width:]], dim=-1)


def _base(
    gaussians: Gaussians, k: int, own_rank: int, dtype: torch.dtype, grams: dict[tuple[int, bool], Tensor]
) -> _Base:
    """The base of class k; `grams` keeps Grams of shared rows while they fit, since several bases may need them."""
    weights = gaussians.shared_weight_KT[k]
    parts = [t for t in range(len(gaussians.shared)) if float(weights[t].detach()) > 0]
    rank = sum(gaussians.shared[t].shape[0] for t in parts)
    whole, weight_K = gaussians.sum_DD, gaussians.sum_weight_K
    dense = whole is not None or rank >= _DENSE_FROM * gaussians.width or own_rank >= gaussians.width
    # The low-rank form subtracts nearly equal numbers when variances are large, so it runs in float64. It is small.
    dtype = dtype if dense else torch.float64
    size = gaussians.width if dense else rank
    identity = torch.eye(size, dtype=dtype, device=weights.device)
    beta = gaussians.identity

    def gram_of(t: int) -> Tensor:
        if (t, dense) in grams:
            return grams[t, dense]
        rows = gaussians.shared[t].to(dtype)
        product = gram(rows if dense else rows.T)
        if sum(kept.numel() for kept in grams.values()) + product.numel() <= _KEPT_GRAMS:
            grams[t, dense] = product
        return product

    if dense:
        matrix = beta * identity
        for t in parts:
            matrix = matrix + weights[t].to(dtype) * gram_of(t)
        if whole is not None and weight_K is not None:
            matrix = matrix + weight_K[k].to(dtype) * whole.to(dtype)
        check_digits(matrix, beta)
        return _Base(factorise(matrix), None, beta)
    if len(parts) == 1:
        t = parts[0]
        scale = weights[t].to(dtype)
        rows, matrix = scale.sqrt() * gaussians.shared[t].to(dtype), scale * gram_of(t)
    else:
        rows = torch.cat(
            [weights[t].to(dtype).sqrt() * gaussians.shared[t].to(dtype) for t in parts]
            or [gaussians.means_KD.new_zeros(0, gaussians.width, dtype=dtype)]
        )
        matrix = rows @ rows.T
    return _Base(factorise(beta * identity + matrix), rows, beta)


def _solve_group(means_KD: Tensor, rows: OwnRows, classes: Tensor, base: _Base, query_QD: Tensor) -> Solution:
    """Distances of all queries to the classes of one group, and the log-determinants of these."""
    centre_D = means_KD.mean(dim=0)
    means_KE = base.map(means_KD - centre_D)
    query_QE = base.map(query_QD - centre_D)
    signed_QE, signed_KE = base.signed(query_QE), base.signed(means_KE)
    to_base = (
        (query_QE * signed_QE).sum(dim=1)[:, None]
        + (means_KE * signed_KE).sum(dim=1)
        - 2 * query_QE @ signed_KE.T
    )
    of_base_K = base.log_determinant(means_KD.shape[1]).expand(len(classes))
    rank = rows.longest(classes)
    if rank == 0:
        return Solution(to_base, of_base_K)
    step = max(1, _CHUNK // (rank * max(query_QE.shape)))
    parts = [slice(i, i + step) for i in range(0, len(classes), step)]
    blocks = (base.map(rows.block(classes[part], rank)) for part in parts)
    if rank >= means_KD.shape[1]:  # the base is dense then, so that E = D and there are no signs
        found = [_dense(block, query_QE, means_KE[part]) for part, block in zip(parts, blocks, strict=True)]
        distances_KQ, gains_K = (torch.cat(each) for each in zip(*found, strict=True))
        return Solution(distances_KQ.T, of_base_K + gains_K)
    found = [
        _correction(block, base, signed_QE, signed_KE[part])
        for part, block in zip(parts, blocks, strict=True)
    ]
    corrections_KQ, gains_K = (torch.cat(each) for each in zip(*found, strict=True))
    return Solution(to_base - corrections_KQ.T, of_base_K + gains_K)


def _correction(rows_KPE: Tensor, base: _Base, signed_QE: Tensor, signed_KE: Tensor) -> tuple[Tensor, Tensor]:
    """What a class's own rows, mapped, take off the distance in the base, K x Q, and add to its log-determinant, K."""
    gram_KPP = rows_KPE @ base.signed(rows_KPE).mT
    check_digits(gram_KPP, 1.0)
    identity = torch.eye(gram_KPP.shape[-1], dtype=base.dtype, device=rows_KPE.device)
    projected_KPQ = rows_KPE @ signed_QE.T - rows_KPE @ signed_KE[..., None]
    factor_KPP = factorise(identity + gram_KPP)
    return (inverses(factor_KPP) @ projected_KPQ).square().sum(dim=1), log_determinants(factor_KPP)


def _dense(rows_KPE: Tensor, query_QE: Tensor, means_KE: Tensor) -> tuple[Tensor, Tensor]:
    """The same with a D x D factor per class, but for whole distances.

    |M^-1 y|^2 with M M^T = I + rows^T rows in the base's metric.
    """
    gram_KEE = rows_KPE.mT @ rows_KPE
    check_digits(gram_KEE, 1.0)
    identity = torch.eye(gram_KEE.shape[-1], dtype=rows_KPE.dtype, device=rows_KPE.device)
    y_KEQ = (query_QE - means_KE[:, None]).mT
    factor_KEE = factorise(identity + gram_KEE)
    return solve_lower(factor_KEE, y_KEQ).square().sum(dim=1), log_determinants(factor_KEE)


def check_digits(matrices: Tensor, floor: float) -> None:
    """Refuse float32 for matrices whose largest eigenvalue may be too far above `floor`."""
    if matrices.dtype == torch.float64 or not matrices.numel():
        return
    largest = torch.linalg.matrix_norm(matrices.detach()).max()
    if not bool(largest <= _LOSS_IN_FLOAT32 * floor):
        raise PrecisionError
