"""Exact distances to the nearest few of very many classes.

Candidates are the classes with the nearest means in the space whitened by the covariance of all classes; their
distances are those of `mahalanobis`, computed for pairs of a query and a candidate:

    Q_k = a_k I + b_k S + own_k^T own_k,   G_k = a_k I + b_k S,   y = z - mu_k
    y^T Q_k^-1 y = y^T G_k^-1 y - |L_k^-1 own_k G_k^-1 y|^2,   L_k L_k^T = I + own_k G_k^-1 own_k^T

What of this depends on the class alone is computed once. G_k^-1 z depends on both, but on the class only by
t = a_k / b_k: b_k G_k^-1 z = (t I + S)^-1 z is computed for a few t, and interpolated in log t at Chebyshev points.
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
from cl_cnaps.gaussian.cholesky import PrecisionError, inverses
from cl_cnaps.gaussian.mahalanobis import Eigenbasis, OwnRows
from cl_cnaps.gaussian.statistics import Scatter, Statistics, join_floors

_AT_ONCE = 512
"""Classes that are factored together, and queries that are answered together."""

_ACCURACY = 1e-8
"""Of the interpolation, relative to what is interpolated."""

_CELLS_FROM = 20_000
"""Classes from which faiss looks into some cells of the space only."""

_CELLS_SEARCHED = 1 / 8
_CELL_ROUNDS = 8
_SAMPLE = 40_000
"""Classes that the cells are made from."""

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
    basis: Eigenbasis
    log_t_M: Tensor
    """Where the inverse is computed."""
    own_K: Tensor
    """Weight of the class's scatter in Q_k."""
    shared_K: Tensor
    """b_k."""
    mixing_KM: Tensor
    """Interpolation weights of each class."""
    inverse_KPP: Tensor
    """L_k^-1."""
    projected_KP: Tensor
    """own_k G_k^-1 mu_k."""
    squares_K: Tensor
    """mu_k^T G_k^-1 mu_k."""
    whiten_D: Tensor
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
        query_QE = self.basis.map(query_QD - self.centre_D)
        classes_QS = self.search.nearest(query_QE * self.whiten_D, self.candidates)
        inverse_MD = 1 / (self.log_t_M.exp()[:, None] + self.basis.values_D)
        squares_QM = query_QE.square() @ inverse_MD.T
        vectors = self.basis.vectors_DD
        assert vectors is not None
        solved_QMD = (query_QE[:, None] * inverse_MD) @ vectors.T
        rows = [OwnRows(part.rows_RD, part.row_class_R, part.n_classes) for part in self.parts]
        logits = [
            self._logits(rows, classes_S, solved_MD, squares_M)
            for classes_S, solved_MD, squares_M in zip(classes_QS, solved_QMD, squares_QM, strict=True)
        ]
        return Candidates(classes_QS, torch.stack(logits))

    def _logits(
        self, rows: Sequence[OwnRows], classes_S: Tensor, solved_MD: Tensor, squares_M: Tensor
    ) -> Tensor:
        """Logits of one query and its candidates, S."""
        part_S = torch.searchsorted(self.offsets, classes_S, right=True) - 1
        mixing_SM, shared_S = self.mixing_KM[classes_S], self.shared_K[classes_S]
        means_SM = torch.empty_like(mixing_SM)
        rows_SPM = mixing_SM.new_empty(len(classes_S), self.rank, mixing_SM.shape[1])
        for number in sorted(set(part_S.tolist())):
            here = torch.nonzero(part_S == number).flatten()
            local = classes_S[here] - self.offsets[number]
            means_SM[here] = (self.parts[number].means_KD[local] - self.centre_D) @ solved_MD.T
            block_SPD = rows[number].block(local, self.rank).to(mixing_SM.dtype)
            rows_SPM[here] = block_SPD @ solved_MD.T
        to_base_S = ((squares_M - 2 * means_SM) * mixing_SM).sum(dim=1) / shared_S + self.squares_K[classes_S]
        scale_S = self.own_K[classes_S].sqrt() / shared_S
        projected_SP = (rows_SPM @ mixing_SM[..., None])[..., 0] * scale_S[:, None] - self.projected_KP[
            classes_S
        ]
        inside_SP = (self.inverse_KPP[classes_S] @ projected_SP[..., None])[..., 0]
        return inside_SP.square().sum(dim=1) - to_base_S

    def logits(self, query_QD: Tensor) -> Tensor:
        """Logits Q x K: those of the candidates are exact, all others lie below them."""
        found = self.nearest(query_QD)
        lowest_Q1 = found.logits_QS.amin(dim=1, keepdim=True) - _BELOW
        return lowest_Q1.repeat(1, self.n_classes).scatter_(1, found.classes_QS, found.logits_QS)

    def nbytes(self) -> int:
        """Memory that is taken beside the classes' statistics."""
        parts = (
            self.inverse_KPP,
            self.projected_KP,
            self.squares_K,
            self.mixing_KM,
            self.own_K,
            self.shared_K,
        )
        vectors = 0 if self.basis.vectors_DD is None else self.basis.vectors_DD.nbytes
        return sum(part.nbytes for part in parts) + vectors + self.search.nbytes


def _build(
    parts: Sequence[Statistics], scatter: Scatter, candidates: int, beta: float, dtype: torch.dtype
) -> Shortlist:
    counts_K = torch.cat([part.counts_K for part in parts]).to(dtype)
    own_K, shared_K = 1 / (counts_K + 1), 1 / ((counts_K + 1) * scatter.total)
    floor_K = join_floors([part.floor_K for part in parts], [part.counts_K for part in parts])
    floors_K = torch.full_like(own_K, beta) if floor_K is None else beta + own_K * floor_K
    if scatter.floor is not None:
        floors_K = floors_K + shared_K * scatter.floor
    basis = Eigenbasis.of(scatter.rows_RD, parts[0].means_KD, dtype)
    centre_D = torch.stack([part.means_KD.sum(dim=0) for part in parts]).to(dtype).sum(dim=0) / len(counts_K)
    log_t_K = (floors_K / shared_K).log()
    log_t_M = _chebyshev_points(log_t_K)
    own_rows = [OwnRows(part.rows_RD, part.row_class_R, part.n_classes) for part in parts]
    rank = max(1, *(rows.longest(_numbers(part)) for rows, part in zip(own_rows, parts, strict=True)))
    inverse, projected, squares, offset = [], [], [], 0
    for part, rows in zip(parts, own_rows, strict=True):
        for classes in torch.split(_numbers(part), _AT_ONCE):
            here = classes + offset
            block_KPD = rows.block(classes, rank).to(dtype) * own_K[here].sqrt()[:, None, None]
            bases = basis.bases(floors_K[here], shared_K[here], block_KPD)
            means_KE = basis.map(part.means_KD[classes].to(dtype) - centre_D)
            inverse.append(inverses(bases.factor_KPP))
            projected.append((bases.solved_KPE @ means_KE[..., None])[..., 0])
            squares.append((means_KE.square() / bases.diagonal_KD).sum(dim=1))
        offset += part.n_classes
    whiten_D = (log_t_K.median().exp() + basis.values_D).rsqrt()
    search: TorchSearch | FaissSearch = TorchSearch()
    if find_spec("faiss") is not None and counts_K.device.type == "cpu":
        sample = torch.cat([part.means_KD[:: max(1, len(counts_K) // _SAMPLE)] for part in parts])
        search = FaissSearch(basis.map(sample.to(dtype) - centre_D) * whiten_D, len(counts_K))
    for part in parts:
        for means_KD in torch.split(part.means_KD, 1 << 14):
            search.add(basis.map(means_KD.to(dtype) - centre_D) * whiten_D)
    offsets = torch.tensor([0, *(part.n_classes for part in parts[:-1])], device=counts_K.device)
    return Shortlist(
        min(candidates, len(counts_K)),
        tuple(parts),
        torch.cumsum(offsets, 0),
        rank,
        centre_D,
        basis,
        log_t_M,
        own_K,
        shared_K,
        _interpolation(log_t_K, log_t_M),
        torch.cat(inverse),
        torch.cat(projected),
        torch.cat(squares),
        whiten_D,
        search,
    )


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

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return sum(part.nbytes for part in self._parts)


class FaissSearch:
    """Nearest vectors by faiss: among all, or from many classes on among those in the nearest cells."""

    def __init__(self, sample_ND: Tensor, n_vectors: int) -> None:
        """Make an empty index for so many vectors, which are like those of the sample."""
        import faiss

        width = sample_ND.shape[1]
        cells = 0 if n_vectors < _CELLS_FROM else 1 << round(math.log2(2 * math.sqrt(n_vectors)))
        index: Any = faiss.index_factory(width, f"IVF{cells},SQfp16" if cells else "Flat")
        self._bytes_a_number = 2 if cells else 4
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

    @property
    def nbytes(self) -> int:
        """Memory taken by the vectors."""
        return int(self._index.ntotal) * int(self._index.d) * self._bytes_a_number


def _numbers(part: Statistics) -> Tensor:
    return torch.arange(part.n_classes, device=part.means_KD.device)


def _array(vectors: Tensor) -> Any:
    return vectors.float().contiguous().cpu().numpy()


def _chebyshev_points(log_t_K: Tensor) -> Tensor:
    """Points in the range of log t, as many as the accuracy needs.

    1 / (e^x + s) has its nearest poles at a distance of pi from the real line, for any s: the Bernstein ellipse through
    them bounds the error.
    """
    low, high = float(log_t_K.min()), float(log_t_K.max())
    half = (high - low) / 2
    if half < _ACCURACY:
        return log_t_K.new_tensor([low])
    growth = math.pi / half + math.hypot(math.pi / half, 1)
    number = 1 + math.ceil(-math.log(_ACCURACY) / math.log(growth))
    angles = [math.pi * (2 * i + 1) / (2 * number) for i in range(number)]
    return log_t_K.new_tensor([(low + high) / 2 + half * math.cos(angle) for angle in angles])


def _interpolation(log_t_K: Tensor, points_M: Tensor) -> Tensor:
    """Weights K x M of the values at the points, by the barycentric formula."""
    points_M = points_M.double()
    number = len(points_M)
    angles_M = torch.pi * (2 * torch.arange(number, device=points_M.device) + 1) / (2 * number)
    weights_M = torch.sin(angles_M) * torch.where(
        torch.arange(number, device=points_M.device) % 2 == 0, 1.0, -1.0
    )
    offsets_KM = log_t_K.double()[:, None] - points_M
    at_KM = offsets_KM == 0
    terms_KM = weights_M / offsets_KM.where(~at_KM, torch.ones_like(offsets_KM))
    mixing_KM = terms_KM / terms_KM.sum(dim=1, keepdim=True)
    return mixing_KM.where(~at_KM.any(dim=1, keepdim=True), at_KM.double()).to(log_t_K.dtype)
