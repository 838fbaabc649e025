"""Exact distances to the nearest few of very many classes.

Candidates are the classes with the nearest means in the space whitened by the covariance of all classes, or rather in
its directions in which the means differ most; their distances are those of `mahalanobis`, computed for pairs of a query
and a candidate:

    Q_k = B_k + own_k^T own_k,   y = z - mu_k
    y^T Q_k^-1 y = y^T B_k^-1 y - |L_k^-1 own_k B_k^-1 y|^2,   L_k L_k^T = I + own_k B_k^-1 own_k^T

What of this depends on the class alone is computed once. The base B_k = A + u_k E depends on the class only by
u_k = 1 / (n_k + 1), see `Pencil`: B^-1 z is computed for a few u, and interpolated in log u at Chebyshev points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_features, check_finite
from cl_cnaps.gaussian.cholesky import PrecisionError, factorise, gram, inverses, solve_rows
from cl_cnaps.gaussian.mahalanobis import OwnRows, check_digits
from cl_cnaps.gaussian.statistics import Scatter, Statistics

_AT_ONCE = 512
"""Classes that are factored together, and queries that are answered together."""

_ACCURACY = 1e-8
"""Of the interpolation, relative to what is interpolated."""

_CELLS_FROM = 20_000
"""Classes from which faiss looks into some cells of the space only."""

_CELLS_SEARCHED = 1 / 8
_CELL_ROUNDS = 8
_SAMPLE = 25_000
"""Classes that the cells and the directions of the search are made from."""

_SEARCHED_WIDTH = 256
"""Most directions of the search."""

_AT_HAND = 1 << 21
"""Numbers of rows that are multiplied at a time: few enough for a processor's cache."""

_BELOW = 1e9
"""How far below the last candidate's logit those of other classes are set: finite, but no probability is left."""


class Candidates(NamedTuple):
    """The nearest classes of each query, best first in the whitened space, and their exact logits."""

    classes_QS: Tensor
    logits_QS: Tensor


@dataclass(frozen=True)
class Shortlist:
    """Many classes, made ready for queries; valid while neither classes nor scatter change."""

    candidates: int
    parts: tuple[Statistics, ...]
    """The classes, held by reference."""
    offsets: Tensor
    """Number of the first class of each part."""
    rank: int
    centre_D: Tensor
    pencil: Pencil
    log_u_M: Tensor
    """Where the inverse is computed."""
    own_K: Tensor
    """u_k, which is also the weight of the class's scatter in Q_k."""
    mixing_KM: Tensor
    """Interpolation weights of each class."""
    inverse_KPP: Tensor
    """L_k^-1."""
    projected_KP: Tensor
    """own_k B_k^-1 mu_k."""
    squares_K: Tensor
    """mu_k^T B_k^-1 mu_k."""
    whiten_DE: Tensor
    """Maps the coordinates of the pencil to those of the search."""
    search: TorchSearch | FaissSearch

    @staticmethod
    @torch.no_grad()
    def build(
        parts: Sequence[Statistics], scatter: Scatter, *, candidates: int, beta: float = 1.0
    ) -> Shortlist:
        """Make classes ready whose covariances are the paper's, with Sigma of `scatter`.

        Args:
            parts: statistics of the classes, numbered through.
            scatter: of all images of all classes.
            candidates: how many classes get exact distances for each query.
            beta: weight of the identity.
        """
        if candidates < 1:
            raise BadInputError(f"a shortlist needs at least one candidate, got {candidates}")
        wide = torch.promote_types(parts[0].means_KD.dtype, torch.float32)
        try:
            return _build(parts, scatter, candidates, beta, wide)
        except PrecisionError:  # float64 has the digits that float32 lacks
            return _build(parts, scatter, candidates, beta, torch.float64)

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.own_K)

    @torch.no_grad()
    def nearest(self, query_QD: Tensor) -> Candidates:
        """The candidates of each query with -(z - mu_k)^T Q_k^-1 (z - mu_k)."""
        check_features(query_QD, "query", len(self.centre_D))
        found = [self._nearest(part) for part in torch.split(query_QD.to(self.centre_D), _AT_ONCE)]
        classes_QS = torch.cat([one.classes_QS for one in found])
        logits_QS = torch.cat([one.logits_QS for one in found]).clamp_max(0).to(query_QD.dtype)
        return Candidates(classes_QS, check_finite(logits_QS, "the Mahalanobis distance"))

    def _nearest(self, query_QD: Tensor) -> Candidates:
        query_QE = self.pencil.map(query_QD - self.centre_D)
        classes_QS = self.search.nearest(query_QE @ self.whiten_DE, self.candidates)
        inverse_ME = 1 / self.pencil.diagonals(self.log_u_M.exp())
        squares_QM = query_QE.square() @ inverse_ME.T
        solved_QMD = self.pencil.map_back(query_QE[:, None] * inverse_ME)
        # Pairs in the order of their classes, whose rows are then read in the order in which they lie in memory.
        classes_N, order_N = torch.sort(classes_QS.flatten())
        query_N = order_N // classes_QS.shape[1]
        ends = torch.searchsorted(classes_N, self.offsets[1:]).tolist()
        logits_N = query_QE.new_empty(classes_QS.numel())
        at_once = max(1, _AT_HAND // (self.rank * len(self.centre_D)))
        for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(classes_N)], strict=True)):
            part = self.parts[number]
            rows = OwnRows(part.rows_RD, part.row_class_R, part.n_classes, part.scale_R)
            for first in range(start, end, at_once):
                pairs = slice(first, min(first + at_once, end))
                logits_N[order_N[pairs]] = self._logits(
                    number, rows, classes_N[pairs], solved_QMD[query_N[pairs]], squares_QM[query_N[pairs]]
                )
        return Candidates(classes_QS, logits_N.view_as(classes_QS))

    def _logits(
        self, number: int, rows: OwnRows, classes_N: Tensor, solved_NMD: Tensor, squares_NM: Tensor
    ) -> Tensor:
        """Logits of pairs of a query and a class of one part, N."""
        local_N, mixing_NM = classes_N - self.offsets[number], self.mixing_KM[classes_N]
        means_ND = self.parts[number].means_KD[local_N] - self.centre_D
        solved_NDM = solved_NMD.mT
        means_NM = (means_ND[:, None] @ solved_NDM)[:, 0]
        to_base_N = ((squares_NM - 2 * means_NM) * mixing_NM).sum(dim=1) + self.squares_K[classes_N]
        rows_NPM = rows.block(local_N, self.rank).to(mixing_NM.dtype) @ solved_NDM
        weight_NP = rows.scales(local_N, self.rank, mixing_NM.dtype) * self.own_K[classes_N].sqrt()[:, None]
        projected_NP = (rows_NPM @ mixing_NM[..., None])[..., 0] * weight_NP - self.projected_KP[classes_N]
        inside_NP = (self.inverse_KPP[classes_N] @ projected_NP[..., None])[..., 0]
        return inside_NP.square().sum(dim=1) - to_base_N

    def logits(self, query_QD: Tensor) -> Tensor:
        """Logits Q x K: those of the candidates are exact, all others lie below them."""
        found = self.nearest(query_QD)
        lowest_Q1 = found.logits_QS.amin(dim=1, keepdim=True) - _BELOW
        return lowest_Q1.repeat(1, self.n_classes).scatter_(1, found.classes_QS, found.logits_QS)


@dataclass(frozen=True)
class Pencil:
    """Bases A + u E of classes with any number of images, in coordinates in which all are diagonal, 1 + u e.

    A = beta I + C and E = S / N - C, where S / N is the covariance of all images and C what all classes have in place
    of directions that were left out of their scatters.
    """

    factor_DD: Tensor
    vectors_DD: Tensor
    values_D: Tensor
    """e, each above -1."""

    @staticmethod
    def of(scatter: Scatter, beta: float, dtype: torch.dtype) -> Pencil:
        """The pencil of a scatter, with the classes' covariances as in `estimate`."""
        covariance_DD = scatter.matrix(dtype) / scatter.total
        identity_DD = torch.eye(len(covariance_DD), dtype=dtype, device=covariance_DD.device)
        rest_DD = torch.zeros_like(covariance_DD)
        if scatter.floor is not None:
            if scatter.left_RD is None:
                raise BadInputError(
                    "a shortlist of reduced classes needs the sum of what was left out of them"
                )
            left_DD = gram(scatter.left_RD.to(dtype))
            trace = left_DD.trace()
            share_DD = left_DD / trace if bool(trace > 0) else identity_DD / len(identity_DD)
            rest_DD = share_DD * (scatter.floor / scatter.total * len(identity_DD))
        first_DD = beta * identity_DD + rest_DD
        check_digits(first_DD + covariance_DD, beta)
        factor_DD = factorise(first_DD)
        middle_DD = solve_rows(factor_DD, solve_rows(factor_DD, covariance_DD - rest_DD).T)
        # In float32 it need not converge where many eigenvalues are equal, as with fewer classes than features.
        values_D, vectors_DD = torch.linalg.eigh(((middle_DD + middle_DD.T) / 2).double())
        return Pencil(factor_DD, vectors_DD.to(dtype), values_D.to(dtype))

    def map(self, vectors: Tensor) -> Tensor:
        """Coordinates in which every base is diagonal, ... x D."""
        flat = vectors.reshape(-1, vectors.shape[-1])
        return (solve_rows(self.factor_DD, flat) @ self.vectors_DD).reshape(vectors.shape)

    def map_back(self, mapped: Tensor) -> Tensor:
        """The transpose of `map`: from coordinates over a diagonal to the inverse of the base times the vector."""
        flat = mapped.reshape(-1, mapped.shape[-1]) @ self.vectors_DD.T
        solved: Tensor = torch.linalg.solve_triangular(self.factor_DD, flat, upper=False, left=False)
        return solved.reshape(mapped.shape)

    def diagonals(self, u_K: Tensor) -> Tensor:
        """The bases of classes as diagonals, K x D."""
        return 1 + u_K[:, None] * self.values_D


def _build(
    parts: Sequence[Statistics], scatter: Scatter, candidates: int, beta: float, dtype: torch.dtype
) -> Shortlist:
    own_K = 1 / (torch.cat([part.counts_K for part in parts]).to(dtype) + 1)
    pencil = Pencil.of(scatter, beta, dtype)
    centre_D = torch.stack([part.means_KD.sum(dim=0) for part in parts]).to(dtype).sum(dim=0) / len(own_K)
    log_u_M = _chebyshev_points(own_K.log())
    own_rows = [OwnRows(part.rows_RD, part.row_class_R, part.n_classes, part.scale_R) for part in parts]
    rank = max(1, *(rows.longest(_numbers(part)) for rows, part in zip(own_rows, parts, strict=True)))
    identity_PP = torch.eye(rank, dtype=dtype, device=own_K.device)
    inverse, projected, squares, offset = [], [], [], 0
    for part, rows in zip(parts, own_rows, strict=True):
        for classes in torch.split(_numbers(part), _AT_ONCE):
            u_K = own_K[classes + offset]
            diagonal_KE = pencil.diagonals(u_K)
            weight_KP = rows.scales(classes, rank, dtype) * u_K.sqrt()[:, None]
            rows_KPE = pencil.map(rows.block(classes, rank).to(dtype).mul_(weight_KP[..., None]))
            solved_KPE = rows_KPE / diagonal_KE[:, None]
            means_KE = pencil.map(part.means_KD[classes].to(dtype) - centre_D)
            gram_KPP = solved_KPE @ rows_KPE.mT
            check_digits(gram_KPP, 1.0)
            inverse.append(inverses(factorise(identity_PP + gram_KPP)))
            projected.append((solved_KPE @ means_KE[..., None])[..., 0])
            squares.append((means_KE.square() / diagonal_KE).sum(dim=1))
        offset += part.n_classes
    sample_ND = torch.cat([part.means_KD[:: max(1, len(own_K) // _SAMPLE)] for part in parts])
    sample_NE = pencil.map(sample_ND.to(dtype) - centre_D)
    whiten_DE = _search_map(pencil.diagonals(own_K.median()[None])[0].rsqrt(), sample_NE)
    search: TorchSearch | FaissSearch = TorchSearch()
    if find_spec("faiss") is not None and own_K.device.type == "cpu":
        search = FaissSearch(sample_NE @ whiten_DE, len(own_K))
    del sample_ND, sample_NE
    for part in parts:
        for means_KD in torch.split(part.means_KD, 1 << 12):
            search.add(pencil.map(means_KD.to(dtype) - centre_D) @ whiten_DE)
    offsets = torch.tensor([0, *(part.n_classes for part in parts[:-1])], device=own_K.device)
    return Shortlist(
        min(candidates, len(own_K)),
        tuple(parts),
        torch.cumsum(offsets, 0),
        rank,
        centre_D,
        pencil,
        log_u_M,
        own_K,
        _interpolation(own_K.log(), log_u_M),
        torch.cat(inverse),
        torch.cat(projected),
        torch.cat(squares),
        whiten_DE,
        search,
    )


def _search_map(whiten_D: Tensor, means_NE: Tensor) -> Tensor:
    """From the coordinates of the pencil to the directions in which whitened means differ most, D x E."""
    if len(whiten_D) <= _SEARCHED_WIDTH:
        return torch.diag(whiten_D)
    _, vectors_DD = torch.linalg.eigh(gram((means_NE * whiten_D).double()))
    widest_DE: Tensor = vectors_DD[:, -_SEARCHED_WIDTH:].to(whiten_D.dtype)
    return whiten_D[:, None] * widest_DE


class TorchSearch:
    """Nearest vectors by comparing with all of them."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, vectors_KD: Tensor) -> None:
        """Take in more vectors."""
        self._parts.append(vectors_KD)

    def nearest(self, query_QD: Tensor, number: int) -> Tensor:
        """The numbers of the nearest vectors, Q x S."""
        distances = [part.square().sum(dim=1) - 2 * query_QD @ part.T for part in self._parts]
        return torch.cat(distances, dim=1).topk(number, dim=1, largest=False).indices


class FaissSearch:
    """Nearest vectors by faiss: among all, or from many classes on among those in the nearest cells."""

    def __init__(self, sample_ND: Tensor, n_vectors: int) -> None:
        """Make an empty index for so many vectors, which are like those of the sample."""
        import faiss

        width = sample_ND.shape[1]
        cells = 0 if n_vectors < _CELLS_FROM else 1 << round(math.log2(2 * math.sqrt(n_vectors)))
        index: Any = faiss.index_factory(width, f"IVF{cells},Flat" if cells else "Flat")
        if cells:
            index.cp.niter, index.cp.seed = _CELL_ROUNDS, 0
            index.train(_array(sample_ND))
            index.nprobe = max(1, round(cells * _CELLS_SEARCHED))
        self._index = index

    def add(self, vectors_KD: Tensor) -> None:
        """Take in more vectors."""
        self._index.add(_array(vectors_KD))

    def nearest(self, query_QD: Tensor, number: int) -> Tensor:
        """The numbers of the nearest vectors, Q x S."""
        found_QS = torch.from_numpy(self._index.search(_array(query_QD), number)[1]).to(query_QD.device)
        # Cells with too few vectors leave gaps, which the nearest one fills.
        return found_QS.where(found_QS >= 0, found_QS[:, :1])


def _numbers(part: Statistics) -> Tensor:
    return torch.arange(part.n_classes, device=part.means_KD.device)


def _array(vectors: Tensor) -> Any:
    return vectors.float().contiguous().cpu().numpy()


def _chebyshev_points(log_u_K: Tensor) -> Tensor:
    """Points in the range of log u, as many as the accuracy needs.

    1 / (1 + u e) has its poles at a distance of pi from the real line where e > 0, and above u = 1 where -1 < e < 0:
    the Bernstein ellipse through the nearest bounds the error.
    """
    low, high = float(log_u_K.min()), float(log_u_K.max())
    half = (high - low) / 2
    if half < _ACCURACY:
        return log_u_K.new_tensor([low])
    above = -(low + high) / 2 / half
    growth = min(math.pi / half + math.hypot(math.pi / half, 1), above + math.sqrt(above**2 - 1))
    number = 1 + math.ceil(-math.log(_ACCURACY) / math.log(growth))
    angles = [math.pi * (2 * i + 1) / (2 * number) for i in range(number)]
    return log_u_K.new_tensor([(low + high) / 2 + half * math.cos(angle) for angle in angles])


def _interpolation(log_u_K: Tensor, points_M: Tensor) -> Tensor:
    """Weights K x M of the values at the points, by the barycentric formula."""
    points_M = points_M.double()
    number = len(points_M)
    angles_M = torch.pi * (2 * torch.arange(number, device=points_M.device) + 1) / (2 * number)
    weights_M = torch.sin(angles_M) * torch.where(
        torch.arange(number, device=points_M.device) % 2 == 0, 1.0, -1.0
    )
    offsets_KM = log_u_K.double()[:, None] - points_M
    at_KM = offsets_KM == 0
    terms_KM = weights_M / offsets_KM.where(~at_KM, torch.ones_like(offsets_KM))
    mixing_KM = terms_KM / terms_KM.sum(dim=1, keepdim=True)
    return mixing_KM.where(~at_KM.any(dim=1, keepdim=True), at_KM.double()).to(log_u_K.dtype)
