"""Counts, means and factored scatter of the classes of one task.

The scatter of class k, S_k = sum (z - mu_k)(z - mu_k)^T, is never formed: it is kept as its centred rows
R_k with S_k = R_k^T R_k, which is n_k x D numbers instead of D x D. A reduced scatter has few rows, for its largest
directions, kept in 8 bits a number, and a multiple of the identity in place of the others: S_k = R_k^T R_k + f_k I,
with the same trace.

Classifiers give what was left out to all classes alike, by their number of images: a class must not look nearer for
having more of it. Where the sum of all that was left out is known, f_k I takes its form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import (
    check_classes,
    check_counts,
    check_features,
    check_labels,
    check_weights,
)
from cl_cnaps.gaussian.cholesky import PrecisionError, factorise, gram

_MANY = 8
"""Rows, as a multiple of the width, from which the Gram of all is formed first."""


@dataclass(frozen=True)
class Scatter:
    """Squares of many images about their common mean: rows^T rows is their sum."""

    rows_RD: Tensor
    total: Tensor
    """n, the number of images."""
    floor: Tensor | None = None
    """Sum of f_k over the classes, where their scatters were reduced."""
    left_RD: Tensor | None = None
    """Rows of the sum of all that was left out, where it is known and `rows_RD` is exact: f_k I takes its form."""
    sum_DD: Tensor | None = None
    """The sum as a matrix, where rows would be as many as features; `rows_RD` is empty then."""

    def scaled(self, factor: Tensor) -> Scatter:
        """The scatter of all features times `factor`."""
        return Scatter(
            self.rows_RD * factor,
            self.total,
            None if self.floor is None else self.floor * factor.square(),
            None if self.left_RD is None else self.left_RD * factor,
            None if self.sum_DD is None else self.sum_DD * factor.square(),
        )

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """The sum as a matrix, D x D."""
        return gram(self.rows_RD.to(dtype)) if self.sum_DD is None else self.sum_DD.to(dtype)


@dataclass(frozen=True)
class Statistics:
    """Sufficient statistics of K classes: what a support set leaves behind once its images are gone."""

    counts_K: Tensor
    """n_k; fractional when labels were soft."""
    means_KD: Tensor
    rows_RD: Tensor
    """Centred rows, those of class 0 first: rows^T rows over class k's rows is its scatter."""
    row_class_R: Tensor
    """Which class each row belongs to, ascending."""
    floor_K: Tensor | None = None
    """f_k of reduced scatters; None where none was reduced."""
    scale_R: Tensor | None = None
    """What rows that are kept in 8 bits are multiplied by; None for other rows."""

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.means_KD.shape[0])

    @property
    def width(self) -> int:
        """D."""
        return int(self.means_KD.shape[1])

    @property
    def total(self) -> Tensor:
        """n, the number of support images."""
        return self.counts_K.sum()

    @property
    def task_mean_D(self) -> Tensor:
        """The mean over all images of the task."""
        return (self.counts_K / self.total) @ self.means_KD

    def task_rows(self) -> Tensor:
        """Rows whose Gram is the scatter of the whole task: within the classes, then between them."""
        between_KD = self.counts_K.sqrt()[:, None] * (self.means_KD - self.task_mean_D)
        return torch.cat([self.restored().rows_RD, between_KD])

    @property
    def scatter(self) -> Scatter:
        """The scatter of all images of these classes."""
        return Scatter(self.task_rows(), self.total, None if self.floor_K is None else self.floor_K.sum())

    def scaled(self, factor: Tensor) -> Statistics:
        """The statistics of all features times `factor`."""
        whole = self.restored()
        floor_K = None if self.floor_K is None else self.floor_K * factor.square()
        return replace(
            whole, means_KD=self.means_KD * factor, rows_RD=whole.rows_RD * factor, floor_K=floor_K
        )

    def restored(self) -> Statistics:
        """The same with rows in the precision of the means."""
        if self.scale_R is None:
            return self
        rows_RD = self.rows_RD.to(self.scale_R.dtype).mul_(self.scale_R[:, None])
        return replace(self, rows_RD=rows_RD, scale_R=None)

    def select(self, classes: Tensor) -> Statistics:
        """The statistics of some classes, in the order given."""
        check_classes(classes, self.n_classes)
        chosen, row_class = rows_of(self.row_class_R, self.n_classes, classes)
        return Statistics(
            self.counts_K[classes],
            self.means_KD[classes],
            self.rows_RD[chosen],
            row_class,
            None if self.floor_K is None else self.floor_K[classes],
            None if self.scale_R is None else self.scale_R[chosen],
        )

    def levelled(self) -> Statistics:
        """The same with what was left out of the scatters given to all classes by their number of images."""
        if self.floor_K is None:
            return self
        return replace(self, floor_K=self.counts_K * (self.floor_K.sum() / self.total))

    def compressed(self) -> Statistics:
        """The same scatter in at most D rows per class; for storing, not for differentiating."""
        rows, row_class = compress_rows(self.rows_RD, self.row_class_R, self.n_classes)
        return replace(self, rows_RD=rows, row_class_R=row_class)

    def reduced(self, rank: int) -> tuple[Statistics, Tensor]:
        """The scatter in at most `rank` rows of bytes per class and a multiple of the identity, see `reduce_rows`.

        Returns also at most D rows whose Gram is the sum of all that was left out.
        """
        from cl_cnaps.gaussian.reduction import as_bytes, reduce_rows  # for few directions alone

        whole = self.restored()
        found = reduce_rows(whole.rows_RD, self.row_class_R, self.n_classes, rank)
        rows_RD, scale_R = as_bytes(found.rows_RD)
        floor_K = plus(self.floor_K, found.floor_K)
        reduced = Statistics(self.counts_K, self.means_KD, rows_RD, found.row_class_R, floor_K, scale_R)
        return reduced, found.left_RD


@dataclass(frozen=True, eq=False)
class Moment:
    """The sum of (z - c)(z - c)^T over all images seen, about a fixed centre c, in float64.

    A few more images cost the same whatever came before, and so do classes that are seen again.
    """

    centre_D: Tensor
    sum_DD: Tensor

    def plus(self, statistics: Statistics, sign: int = 1) -> Moment:
        """The sum with the images of some classes, or with `sign` -1 without them."""
        means_KD = statistics.means_KD.double() - self.centre_D
        between_KD = statistics.counts_K.double().sqrt()[:, None] * means_KD
        rows_RD = torch.cat([statistics.restored().rows_RD.double(), between_KD])
        return Moment(self.centre_D, self.sum_DD + sign * (rows_RD.T @ rows_RD))

    def scatter_DD(self, total: Tensor, mean_D: Tensor) -> Tensor:
        """The sum about the images' own mean."""
        shift_D = (total.double().sqrt() * (mean_D - self.centre_D))[:, None]
        return torch.addmm(self.sum_DD, shift_D, shift_D.T, alpha=-1)


def support_statistics(features_ND: Tensor, labels_N: Tensor, n_classes: int) -> Statistics:
    """Statistics of a labelled support set (eq. simple-cnaps-eq:mean-cov-calculation).

    Args:
        features_ND: one feature vector per support image.
        labels_N: class of each, in 0..n_classes-1; every class must occur.
        n_classes: K.
    """
    check_features(features_ND, "support")
    if features_ND.shape[0] == 0:
        raise BadInputError("the support set is empty")
    check_labels(labels_N, features_ND.shape[0], n_classes)
    labels_N = labels_N.to(device=features_ND.device, dtype=torch.int64)
    counts_K = torch.bincount(labels_N, minlength=n_classes)
    check_counts(counts_K)
    features_ND = _at_least_float32(features_ND)
    counts_K = counts_K.to(features_ND.dtype)

    order = torch.argsort(labels_N, stable=True)
    row_class_R, features_RD = labels_N[order], features_ND[order]
    # Centring on the task first keeps the class sums small, so that their rounding is.
    centre_D = features_ND.mean(dim=0)
    features_RD = features_RD - centre_D
    sums_KD = features_RD.new_zeros(n_classes, features_RD.shape[1]).index_add(0, row_class_R, features_RD)
    means_KD = sums_KD / counts_K[:, None]
    return Statistics(counts_K, means_KD + centre_D, features_RD - means_KD[row_class_R], row_class_R)


def weighted_statistics(features_ND: Tensor, weights_NK: Tensor) -> Statistics:
    """Statistics under soft labels w_jk (eq:update_first to eq:update_last).

    One-hot weights give exactly what `support_statistics` gives for those labels.
    """
    check_features(features_ND, "weighted")
    if features_ND.shape[0] == 0:
        raise BadInputError("the support set is empty")
    check_weights(weights_NK, features_ND.shape[0])
    features_ND = _at_least_float32(features_ND)
    weights_NK = weights_NK.to(features_ND)
    counts_K = weights_NK.sum(dim=0)
    check_counts(counts_K)
    means_KD = (weights_NK / counts_K).T @ features_ND
    rows_RD, row_class_R = _weighted_rows(features_ND, weights_NK, means_KD)
    return Statistics(counts_K, means_KD, rows_RD, row_class_R)


def pool(support: Statistics, query_QD: Tensor, weights_QK: Tensor) -> Statistics:
    """Statistics over the support set and soft-labelled queries, from the support's statistics alone.

    Exact without the support images: the scatter about the new mean is the old scatter, plus n_k times the
    outer product of the mean's shift, plus the weighted scatter of the queries.
    """
    check_features(query_QD, "query", support.width)
    check_weights(weights_QK, query_QD.shape[0], support.n_classes)
    query_QD, weights_QK = query_QD.to(support.means_KD), weights_QK.to(support.means_KD)
    counts_K = support.counts_K + weights_QK.sum(dim=0)
    # Written as a shift of the old mean, so that no queries means no change at all.
    gain_KD = weights_QK.T @ query_QD - weights_QK.sum(dim=0)[:, None] * support.means_KD
    means_KD = support.means_KD + gain_KD / counts_K[:, None]
    shift_KD = support.counts_K.sqrt()[:, None] * (support.means_KD - means_KD)
    query_rows, query_class = _weighted_rows(query_QD, weights_QK, means_KD)
    classes = torch.arange(support.n_classes, device=means_KD.device)
    rows, row_class = sort_rows(
        torch.cat([support.restored().rows_RD, shift_KD, query_rows]),
        torch.cat([support.row_class_R, classes, query_class]),
    )
    return Statistics(counts_K, means_KD, rows, row_class, support.floor_K)


def combine(first: Statistics, second: Statistics) -> Statistics:
    """Statistics of the same classes over two support sets, as if their images had come together."""
    if first.n_classes != second.n_classes or first.width != second.width:
        raise BadInputError(
            f"cannot combine {first.n_classes} classes of width {first.width} with {second.n_classes} of {second.width}"
        )
    counts_K = first.counts_K + second.counts_K
    shift_KD = second.means_KD - first.means_KD
    means_KD = first.means_KD + (second.counts_K / counts_K)[:, None] * shift_KD
    between_KD = (first.counts_K * second.counts_K / counts_K).sqrt()[:, None] * shift_KD
    classes = torch.arange(first.n_classes, device=means_KD.device)
    rows, row_class = sort_rows(
        torch.cat([first.restored().rows_RD, second.restored().rows_RD, between_KD]),
        torch.cat([first.row_class_R, second.row_class_R, classes]),
    )
    return Statistics(counts_K, means_KD, rows, row_class, plus(first.floor_K, second.floor_K))


def join(parts: Sequence[Statistics]) -> Statistics:
    """The classes of several sets side by side."""
    scales = [part.scale_R for part in parts if part.scale_R is not None]
    if len(scales) < len(parts):
        parts, scales = [part.restored() for part in parts], []
    offsets = [sum(part.n_classes for part in parts[:i]) for i in range(len(parts))]
    return Statistics(
        torch.cat([part.counts_K for part in parts]),
        torch.cat([part.means_KD for part in parts]),
        torch.cat([part.rows_RD for part in parts]),
        torch.cat([part.row_class_R + offset for part, offset in zip(parts, offsets, strict=True)]),
        join_floors([part.floor_K for part in parts], [part.counts_K for part in parts]),
        torch.cat(scales) if scales else None,
    )


def _at_least_float32(features: Tensor) -> Tensor:
    """Half precision cannot count beyond 2048 (bfloat16: 256), and its sums overflow; results go back to it."""
    return features.to(torch.promote_types(features.dtype, torch.float32))


def _weighted_rows(features_ND: Tensor, weights_NK: Tensor, means_KD: Tensor) -> tuple[Tensor, Tensor]:
    """Rows sqrt(w_jk) (z_j - mu_k) for every weight that is not zero, those of class 0 first."""
    row_class, image = torch.nonzero(weights_NK.T > 0, as_tuple=True)
    scale = weights_NK[image, row_class].sqrt()
    return scale[:, None] * (features_ND[image] - means_KD[row_class]), row_class


def sort_rows(rows_RD: Tensor, row_class_R: Tensor) -> tuple[Tensor, Tensor]:
    """Rows brought into class order, otherwise in the order given."""
    order = torch.argsort(row_class_R, stable=True)
    return rows_RD[order], row_class_R[order]


def with_one_shot_rows(statistics: Statistics) -> tuple[Tensor, Tensor]:
    """Class rows as in the released Simple CNAPS, where a one-shot class gets v 11^T in place of Sigma_k.

    v is the variance (n - 1 form) of the entries of that one feature vector: the released estimator takes the
    vector for D samples of one variable.
    """
    one_shot = torch.nonzero(statistics.counts_K == 1).flatten()
    if not len(one_shot):
        return statistics.rows_RD, statistics.row_class_R
    if statistics.width < 2:
        raise BadInputError(
            "the released rule for one-shot classes takes a variance over features: it needs 2 or more"
        )
    keep = statistics.counts_K[statistics.row_class_R] != 1
    deviation = statistics.means_KD[one_shot].std(dim=1, correction=1)
    constant = deviation[:, None].expand(-1, statistics.width)
    return sort_rows(
        torch.cat([statistics.rows_RD[keep], constant]), torch.cat([statistics.row_class_R[keep], one_shot])
    )


def rows_of(row_class_R: Tensor, n_classes: int, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the rows of some classes, which may repeat, and for each its class by position in `classes`."""
    ranks = torch.bincount(row_class_R, minlength=n_classes)
    starts = torch.cumsum(ranks, 0) - ranks
    wanted = ranks[classes]
    row_class = torch.repeat_interleave(torch.arange(len(classes), device=wanted.device), wanted)
    first_row = torch.cumsum(wanted, 0) - wanted
    within = torch.arange(len(row_class), device=wanted.device) - first_row[row_class]
    return starts[classes][row_class] + within, row_class


def compress_rows(rows_RD: Tensor, row_class_R: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """At most D rows per class with the same Gram: the triangular factor of a QR decomposition."""
    width = rows_RD.shape[1]
    ranks = torch.bincount(row_class_R, minlength=n_classes)
    if not bool((ranks > width).any()):
        return rows_RD, row_class_R
    return join_rows([at_most_width(rows) for rows in torch.split(rows_RD, ranks.tolist())])


def plus(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """The sum of two floors, of which either may be missing."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def join_floors(floors: Sequence[Tensor | None], counts: Sequence[Tensor]) -> Tensor | None:
    """Floors of several sets of classes one after another; None where no set has any."""
    if all(floor is None for floor in floors):
        return None
    return torch.cat(
        [
            torch.zeros_like(counts_K) if floor is None else floor
            for floor, counts_K in zip(floors, counts, strict=True)
        ]
    )


def at_most_width(rows_RD: Tensor) -> Tensor:
    """At most D rows with the same Gram; for storing, not for differentiating."""
    if rows_RD.shape[0] <= rows_RD.shape[1]:
        return rows_RD.detach()
    if rows_RD.shape[0] >= _MANY * rows_RD.shape[1]:
        # The Gram in one product is several times as fast, and loses no digits that the Gram of the rows would have.
        try:
            return factorise(gram(rows_RD.detach())).T.contiguous()
        except PrecisionError:
            pass
    factor: Tensor = torch.linalg.qr(rows_RD.detach(), mode="r").R
    return factor


def join_rows(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The rows of all classes one after another, and the class of each."""
    sizes = torch.tensor([len(part) for part in rows], device=rows[0].device)
    return torch.cat(list(rows)), torch.repeat_interleave(torch.arange(len(rows), device=sizes.device), sizes)
