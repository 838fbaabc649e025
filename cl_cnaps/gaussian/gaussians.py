"""Regularised class Gaussians in factored form, and how stored and new ones are merged.

Q_k = lambda_k Sigma_k + (1 - lambda_k) Sigma + beta I is kept as beta I plus two low-rank parts: rows of the class's
own, and a multiple of the Gram of rows that all classes of a task share, or of a matrix where those would be many. Of
classes whose scatter was reduced to its largest directions, the rest is given to all classes alike: in its own form
where the sum of all that was left out is known, else as a multiple of the identity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_classes
from cl_cnaps.gaussian.statistics import (
    Scatter,
    Statistics,
    at_most_width,
    compress_rows,
    join_floors,
    join_rows,
    plus,
    rows_of,
    sort_rows,
    with_one_shot_rows,
)

Normaliser = Literal["paper", "released-simple", "released-transductive"]
"""How sums of squares become covariances.

paper: 1/n_k and 1/n. The released code divides by n - 1 for the task, and Simple CNAPS also by n_k - 1 for a
class, with a constant matrix standing in for the covariance of a one-shot class; these two exist so that imported
checkpoints give the authors' logits.
"""


@dataclass(frozen=True)
class Gaussians:
    """K classes: mean mu_k and Q_k = (beta + floor) I + own_k^T own_k + sum_t w_kt shared_t^T shared_t + v_k sum."""

    counts_K: Tensor
    means_KD: Tensor
    rows_RD: Tensor
    """Rows of the classes' own parts, those of class 0 first."""
    row_class_R: Tensor
    shared: tuple[Tensor, ...]
    """Row factors that several classes use, usually one per task; held by reference, so stored once."""
    shared_weight_KT: Tensor
    beta: float
    floor_K: Tensor | None = None
    """`floor` is their mean by count; None where no scatter was reduced. Kept by class, so that merging is exact."""
    sum_DD: Tensor | None = None
    """One more shared part, as a matrix: of Gaussians that are made for queries at hand, and are not stored."""
    sum_weight_K: Tensor | None = None
    """v_k, what `sum_DD` is multiplied by."""
    kept: dict[Any, Any] | None = field(default=None, init=False, repr=False, compare=False)
    """What `mahalanobis.solve` has made of these numbers, where it is to keep it; see `for_many_queries`."""

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.means_KD.shape[0])

    @property
    def width(self) -> int:
        """D."""
        return int(self.means_KD.shape[1])

    def for_many_queries(self) -> Gaussians:
        """The same, without gradients, factored once for all queries; see `mahalanobis.bytes_when_kept`."""
        copy = replace(self)
        object.__setattr__(copy, "kept", {})
        return copy

    @property
    def base_weight_KT(self) -> Tensor:
        """Weights of all that is shared: classes with equal ones have the same base."""
        if self.sum_weight_K is None:
            return self.shared_weight_KT
        return torch.cat([self.shared_weight_KT, self.sum_weight_K[:, None]], dim=1)

    def select(self, classes: Tensor) -> Gaussians:
        """Some of the classes, in the order given; shared rows that none of them uses are dropped."""
        check_classes(classes, self.n_classes)
        chosen, row_class = rows_of(self.row_class_R, self.n_classes, classes)
        weights = self.shared_weight_KT[classes]
        used = torch.nonzero((weights > 0).any(dim=0)).flatten()
        return Gaussians(
            self.counts_K[classes],
            self.means_KD[classes],
            self.rows_RD[chosen],
            row_class,
            tuple(self.shared[t] for t in used.tolist()),
            weights[:, used],
            self.beta,
            None if self.floor_K is None else self.floor_K[classes],
            self.sum_DD,
            None if self.sum_weight_K is None else self.sum_weight_K[classes],
        )

    def compressed(self, rank: int | None = None) -> Gaussians:
        """The same Gaussians with at most D rows per class and D shared rows; for storing, not for differentiating.

        With `rank`, class and shared part have at most so many rows per class; see `reduction.reduce_rows`.
        """
        _check_rows(self)
        if rank is not None and rank < self.width:
            return self._reduced(rank)
        rows, row_class, weights = self.rows_RD.detach(), self.row_class_R, self.shared_weight_KT.detach()
        shared = tuple(at_most_width(part) for part in self.shared)
        if sum(part.shape[0] for part in shared) > self.width:
            if bool((weights == weights[:1]).all()):  # one base for all: one factor of it
                scaled = [weight.sqrt() * part for weight, part in zip(weights[0], shared, strict=True)]
                shared = (at_most_width(torch.cat(scaled)),)
                weights = torch.ones_like(weights[:, :1])
            else:  # too much to share: each class takes its own copy in, one class at a time for memory's sake
                ranks = torch.bincount(row_class, minlength=self.n_classes).tolist()
                taken = [
                    at_most_width(
                        torch.cat([own, *(w.sqrt() * part for w, part in zip(of_class, shared, strict=True))])
                    )
                    for own, of_class in zip(torch.split(rows, ranks), weights, strict=True)
                ]
                rows, row_class = join_rows(taken)
                shared, weights = (), weights[:, :0]
        rows, row_class = compress_rows(rows, row_class, self.n_classes)
        return replace(self, rows_RD=rows, row_class_R=row_class, shared=shared, shared_weight_KT=weights)

    def _reduced(self, rank: int) -> Gaussians:
        from cl_cnaps.gaussian.reduction import reduce_rows  # for few directions alone

        rows, row_class = self.rows_RD.detach(), self.row_class_R
        weights, floor_K = self.shared_weight_KT.detach(), self.floor_K
        shared: tuple[Tensor, ...] = ()
        if (
            len(self.shared) > 1
        ):  # merged over tasks: no two classes need have the same base, so each takes its own
            ranks = torch.bincount(row_class, minlength=self.n_classes).tolist()
            parts = [part.to(self.means_KD.dtype) for part in self.shared]
            taken = [
                torch.cat([own, *(w.sqrt() * part for w, part in zip(of_class, parts, strict=True))])
                for own, of_class in zip(torch.split(rows, ranks), weights, strict=True)
            ]
            (rows, row_class), weights = join_rows([at_most_width(part) for part in taken]), weights[:, :0]
        elif self.shared and len(self.shared[0]) > rank * self.n_classes:
            part = at_most_width(self.shared[0])
            if rank * self.n_classes < self.width:
                one_class_R = torch.zeros_like(part[:, 0], dtype=torch.int64)
                one = reduce_rows(part, one_class_R, 1, rank * self.n_classes, half=True)
                part, floor_K = one.rows_RD, plus(floor_K, weights[:, 0] * one.floor_K)
            shared = (part,)
        elif self.shared:
            shared = (self.shared[0].detach(),)
        reduced = reduce_rows(rows, row_class, self.n_classes, rank, half=True)
        return Gaussians(
            self.counts_K,
            self.means_KD,
            reduced.rows_RD,
            reduced.row_class_R,
            shared,
            weights,
            self.beta,
            plus(floor_K, reduced.floor_K),
        )

    def without_covariances(self) -> Gaussians:
        """Counts and means alone, for metrics that use nothing else."""
        nothing = self.rows_RD[:0]
        return Gaussians(
            self.counts_K,
            self.means_KD,
            nothing,
            self.row_class_R[:0],
            (),
            self.shared_weight_KT[:, :0],
            self.beta,
        )

    @property
    def identity(self) -> float:
        """The multiple of the identity in every Q_k: what was left out is given to all classes alike."""
        if self.floor_K is None:
            return self.beta
        return self.beta + float((self.counts_K * self.floor_K).sum() / self.counts_K.sum())

    def covariance_DD(self, k: int) -> Tensor:
        """Q_k as a matrix: for looking at one class, not for computing with many."""
        own = self.rows_RD[self.row_class_R == k]
        own = own.to(self.means_KD.dtype)
        q = own.T @ own + self.identity * torch.eye(self.width, dtype=own.dtype, device=own.device)
        for weight, part in zip(self.shared_weight_KT[k], self.shared, strict=True):
            q = q + weight * (part.T @ part)
        if self.sum_DD is not None and self.sum_weight_K is not None:
            q = q + self.sum_weight_K[k] * self.sum_DD.to(q)
        return q


def estimate(
    statistics: Statistics,
    normaliser: Normaliser = "paper",
    beta: float = 1.0,
    scatter: Scatter | None = None,
) -> Gaussians:
    """Q_k = lambda_k Sigma_k + (1 - lambda_k) Sigma + beta I with lambda_k = n_k / (n_k + 1).

    Args:
        statistics: of the classes, which are usually those of one task.
        normaliser: how sums of squares become covariances.
        beta: weight of the identity.
        scatter: what Sigma is made of, where it is of more classes than these, such as all that were ever seen.
    """
    if not 0 < beta < math.inf:
        raise BadInputError(
            f"beta must be positive and finite so that every covariance can be inverted, got {beta}"
        )
    statistics = statistics.restored()
    scatter = scatter or statistics.scatter
    counts_K, total, task_rows = statistics.counts_K, scatter.total, scatter.rows_RD
    lambda_K = counts_K / (counts_K + 1)
    rows_RD, row_class_R = statistics.rows_RD, statistics.row_class_R

    if normaliser == "paper":
        class_norm_K, task_norm = 1 / counts_K, 1 / total
    elif normaliser == "released-simple":
        rows_RD, row_class_R = with_one_shot_rows(statistics)
        class_norm_K = 1 / (counts_K - 1).where(counts_K > 1, torch.ones_like(counts_K))
        if float(total) > 1:
            task_norm = 1 / (total - 1)
        else:  # the released estimator treats a task of one image like a class of one image
            task_rows, task_norm = rows_RD, torch.ones_like(total)
    elif normaliser == "released-transductive":
        if float(total) <= 1:
            raise BadInputError(
                "the released normaliser divides by n - 1: it needs at least 2 support images"
            )
        class_norm_K, task_norm = 1 / counts_K, 1 / (total - 1)
    else:
        raise BadInputError(
            f"unknown normaliser {normaliser!r}: paper, released-simple or released-transductive"
        )

    own_K, shared_K = lambda_K * class_norm_K, (1 - lambda_K) * task_norm
    rest = _rest(counts_K, scatter, own_K, shared_K)
    made = Gaussians(
        counts_K,
        statistics.means_KD,
        rows_RD * own_K.sqrt()[row_class_R][:, None],
        row_class_R,
        (task_rows, *rest.shared),
        torch.cat([shared_K[:, None], rest.weight_KT], dim=1),
        beta,
        rest.floor_K,
    )
    return _with_sum(made, scatter.sum_DD, shared_K)


class _Rest(NamedTuple):
    """What Q_k has in place of the directions that were left out of reduced scatters."""

    shared: tuple[Tensor, ...]
    weight_KT: Tensor
    floor_K: Tensor | None


def _rest(counts_K: Tensor, scatter: Scatter, own_K: Tensor, shared_K: Tensor) -> _Rest:
    """A part of all that was left out where that is known, else of the identity, by weights of own and shared."""
    nothing_K0 = counts_K.new_zeros(len(counts_K), 0)
    if scatter.floor is None:
        return _Rest((), nothing_K0, None)
    level_K = own_K * counts_K * (scatter.floor / scatter.total)
    if scatter.left_RD is None:
        return _Rest((), nothing_K0, level_K + shared_K * scatter.floor)
    trace = scatter.left_RD.square().sum()
    if not bool(trace > 0):  # no direction was left out
        return _Rest((), nothing_K0, level_K)
    weight_K = level_K * scatter.left_RD.shape[1] / trace
    return _Rest((scatter.left_RD,), weight_K[:, None], None)


def estimate_weighted(
    statistics: Statistics, weights: tuple[Tensor, Tensor], scatter: Scatter | None = None
) -> Gaussians:
    """Q_k = e1 Sigma_k + e2 Sigma + I: the covariances of FiT's heads, in features scaled so that e3 is 1.

    Args:
        statistics: of the classes, whose features were divided by the root of e3.
        weights: e1 and e2; with e1 = 0 all classes have the same covariance.
        scatter: as in `estimate`.
    """
    statistics = statistics.restored()
    scatter = scatter or statistics.scatter
    counts_K, (own, shared) = statistics.counts_K, weights
    scale_K = (own / counts_K).sqrt() if bool(own > 0) else torch.zeros_like(counts_K)
    shared_K = (shared / scatter.total).expand_as(counts_K)
    rest = _rest(counts_K, scatter, scale_K.square(), shared_K)
    made = Gaussians(
        counts_K,
        statistics.means_KD,
        statistics.rows_RD * scale_K[statistics.row_class_R][:, None],
        statistics.row_class_R,
        (scatter.rows_RD * (shared / scatter.total).sqrt(), *rest.shared),
        torch.cat([torch.ones_like(counts_K)[:, None], rest.weight_KT], dim=1),
        1.0,
        rest.floor_K,
    )
    return _with_sum(made, scatter.sum_DD, shared_K)


def _with_sum(gaussians: Gaussians, sum_DD: Tensor | None, weight_K: Tensor) -> Gaussians:
    """The same with a matrix in place of the first shared rows, where there is one."""
    if sum_DD is None:
        return gaussians
    shared, weights_KT = gaussians.shared[1:], gaussians.shared_weight_KT[:, 1:]
    return replace(
        gaussians, shared=shared, shared_weight_KT=weights_KT, sum_DD=sum_DD, sum_weight_K=weight_K
    )


def _check_rows(*parts: Gaussians) -> None:
    if any(part.sum_DD is not None for part in parts):
        raise BadInputError(
            "Gaussians whose shared part is a matrix are for queries at hand, not for storing"
        )


def merge(stored: Gaussians, new: Gaussians) -> Gaussians:
    """Count-weighted average of stored and new mu and Q, class by class (Section "Continual Learning").

    Exact in factored form: a weighted sum of Grams is the Gram of the weighted rows.
    """
    _check_rows(stored, new)
    if stored.n_classes != new.n_classes or stored.width != new.width or stored.beta != new.beta:
        raise BadInputError(
            f"cannot merge {stored.n_classes} classes of width {stored.width} (beta {stored.beta}) with "
            f"{new.n_classes} of width {new.width} (beta {new.beta})"
        )
    counts_K = stored.counts_K + new.counts_K
    share_K = new.counts_K / counts_K
    means_KD = stored.means_KD + share_K[:, None] * (new.means_KD - stored.means_KD)
    rows, row_class = sort_rows(
        torch.cat(
            [
                stored.rows_RD * (1 - share_K).sqrt()[stored.row_class_R][:, None],
                new.rows_RD * share_K.sqrt()[new.row_class_R][:, None],
            ]
        ),
        torch.cat([stored.row_class_R, new.row_class_R]),
    )
    weights = torch.cat(
        [(1 - share_K)[:, None] * stored.shared_weight_KT, share_K[:, None] * new.shared_weight_KT], dim=1
    )
    floor_K = plus(
        None if stored.floor_K is None else (1 - share_K) * stored.floor_K,
        None if new.floor_K is None else share_K * new.floor_K,
    )
    return Gaussians(
        counts_K, means_KD, rows, row_class, stored.shared + new.shared, weights, stored.beta, floor_K
    )


def concatenate(parts: Sequence[Gaussians]) -> Gaussians:
    """The classes of several sets side by side, each with its own shared rows."""
    if not parts:
        raise BadInputError("no classes to put together")
    _check_rows(*parts)
    if len({(part.width, part.beta) for part in parts}) > 1:
        raise BadInputError("cannot put together classes of different feature width or beta")
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + part.n_classes)
    weights: Tensor = torch.block_diag(*(part.shared_weight_KT for part in parts))  # type: ignore[no-untyped-call]
    return Gaussians(
        torch.cat([part.counts_K for part in parts]),
        torch.cat([part.means_KD for part in parts]),
        torch.cat([part.rows_RD for part in parts]),
        torch.cat([part.row_class_R + offset for part, offset in zip(parts, offsets, strict=False)]),
        tuple(rows for part in parts for rows in part.shared),
        weights,
        parts[0].beta,
        join_floors([part.floor_K for part in parts], [part.counts_K for part in parts]),
    )
