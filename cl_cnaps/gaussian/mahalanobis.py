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
from collections.abc import Iterable, Iterator, Sequence
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
    groups = _groups(gaussians)
    parts = [one.solve(query_QD) for one in _made_ready(gaussians, groups, dtype)]
    if len(parts) == 1:  # all classes, in their order
        return Solution(parts[0].distances_QK.to(dtype), parts[0].log_determinants_K.to(dtype))
    order = torch.argsort(torch.cat(groups))
    return Solution(
        torch.cat([part.distances_QK.to(dtype) for part in parts], dim=1)[:, order],
        torch.cat([part.log_determinants_K.to(dtype) for part in parts])[order],
    )


def _made_ready(gaussians: Gaussians, groups: list[Tensor], dtype: torch.dtype) -> Iterable[_Group]:
    """The groups of classes with what does not depend on the queries: one at a time, unless they are kept."""
    # What inference mode makes cannot be used where gradients are wanted later.
    kept = None if torch.is_inference_mode_enabled() else gaussians.kept
    rows = OwnRows(gaussians.rows_RD, gaussians.row_class_R, gaussians.n_classes)
    grams: dict[tuple[int, bool], Tensor] = {}

    def made(classes: Tensor) -> _Group:
        base = _base(gaussians, int(classes[0]), rows.longest(classes), dtype, grams)
        return _Group(gaussians.means_KD[classes], rows, classes, base, keep=kept is not None)

    if kept is None:
        return map(made, groups)
    if dtype not in kept:
        kept[dtype] = [made(classes) for classes in groups]
    found: list[_Group] = kept[dtype]
    return found


def bytes_when_kept(gaussians: Gaussians) -> int:
    """About what the factors take that Gaussians `for_many_queries` keep, in float64 at the most."""
    ranks_K = torch.bincount(gaussians.row_class_R, minlength=gaussians.n_classes)
    rank, width = int(ranks_K.max()), gaussians.width
    shared = width + sum(len(part) for part in gaussians.shared)  # of a vector that the base has mapped
    of_class = width**2 if rank >= width else rank * (shared + rank)
    of_base = width * max(width, shared)
    return 8 * (gaussians.n_classes * (of_class + shared) + len(_groups(gaussians)) * of_base)


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


class _Group:
    """Classes that have the same base, made ready for queries."""

    def __init__(self, means_KD: Tensor, rows: OwnRows, classes: Tensor, base: _Base, *, keep: bool) -> None:
        self._rows, self._classes, self._base = rows, classes, base
        self._rank, self._width = rows.longest(classes), means_KD.shape[1]
        self._centre_D = means_KD.mean(dim=0)
        self._means_KE = base.map(means_KD - self._centre_D)
        self._kept = list(self._blocks()) if keep else None

    def _blocks(self) -> Iterator[_LowRankBlock | _DenseBlock]:
        """The classes' own parts, some classes at a time."""
        if self._rank == 0:
            return
        step = max(1, _CHUNK // (self._rank * self._means_KE.shape[1]))
        make = _DenseBlock if self._rank >= self._width else _LowRankBlock
        for start in range(0, len(self._classes), step):
            part = slice(start, start + step)
            rows_KPE = self._base.map(self._rows.block(self._classes[part], self._rank))
            yield make(rows_KPE, self._means_KE[part], self._base)

    def solve(self, query_QD: Tensor) -> Solution:
        """Distances of queries to these classes, and the classes' log-determinants."""
        query_QE = self._base.map(query_QD - self._centre_D)
        blocks = self._blocks() if self._kept is None else self._kept
        found = [(block.distances(query_QE), block.gains_K) for block in blocks]
        logs_K = self._base.log_determinant(self._width).expand(len(self._classes))
        own_KQ = None
        if found:
            own_KQ, gains_K = (_cat(parts) for parts in zip(*found, strict=True))
            logs_K = logs_K + gains_K
            if self._rank >= self._width:  # the base is dense then, so that E = D and there are no signs
                return Solution(own_KQ.T, logs_K)
        signed_QE, signed_KE = self._base.signed(query_QE), self._base.signed(self._means_KE)
        to_base = (
            (query_QE * signed_QE).sum(dim=1)[:, None]
            + (self._means_KE * signed_KE).sum(dim=1)
            - 2 * query_QE @ signed_KE.T
        )
        return Solution(to_base if own_KQ is None else to_base - own_KQ.T, logs_K)


def _split(query_QE: Tensor) -> Sequence[Tensor]:
    """The queries, at most as many at a time as a vector has numbers."""
    return (query_QE,) if len(query_QE) <= query_QE.shape[1] else torch.split(query_QE, query_QE.shape[1])


def _cat(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The parts after one another; of one part itself, since small tasks feel every copy."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


class _LowRankBlock:
    """|L_k^-1 own_k B^-1 y|^2, what some classes' own rows take off distances in the base, without the queries."""

    def __init__(self, rows_KPE: Tensor, means_KE: Tensor, base: _Base) -> None:
        self._rows_KPE = base.signed(rows_KPE)
        gram_KPP = self._rows_KPE @ rows_KPE.mT
        check_digits(gram_KPP, 1.0)
        identity = torch.eye(gram_KPP.shape[-1], dtype=base.dtype, device=rows_KPE.device)
        factor_KPP = factorise(identity + gram_KPP)
        self._inverse_KPP, self.gains_K = inverses(factor_KPP), log_determinants(factor_KPP)
        self._means_KP1 = self._rows_KPE @ means_KE[..., None]

    def distances(self, query_QE: Tensor) -> Tensor:
        """K x Q, of some queries at a time."""
        parts = [
            (self._inverse_KPP @ (self._rows_KPE @ part.T - self._means_KP1)).square().sum(dim=1)
            for part in _split(query_QE)
        ]
        return _cat(parts, dim=1)


class _DenseBlock:
    """The same with a D x D factor per class, but for whole distances.

    |M_k^-1 y|^2 with M_k M_k^T = I + rows^T rows in the base's metric.
    """

    def __init__(self, rows_KPE: Tensor, means_KE: Tensor, base: _Base) -> None:
        gram_KEE = rows_KPE.mT @ rows_KPE
        check_digits(gram_KEE, 1.0)
        identity = torch.eye(gram_KEE.shape[-1], dtype=base.dtype, device=rows_KPE.device)
        self._factor_KEE = factorise(identity + gram_KEE)
        self._means_KE, self.gains_K = means_KE, log_determinants(self._factor_KEE)

    def distances(self, query_QE: Tensor) -> Tensor:
        """K x Q, of some queries at a time."""
        parts = [
            solve_lower(self._factor_KEE, (part - self._means_KE[:, None]).mT).square().sum(dim=1)
            for part in _split(query_QE)
        ]
        return _cat(parts, dim=1)


def check_digits(matrices: Tensor, floor: float) -> None:
    """Refuse float32 for matrices whose largest eigenvalue may be too far above `floor`."""
    if matrices.dtype == torch.float64 or not matrices.numel():
        return
    largest = torch.linalg.matrix_norm(matrices.detach()).max()
    if not bool(largest <= _LOSS_IN_FLOAT32 * floor):
        raise PrecisionError
