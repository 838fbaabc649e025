"""Scatters in few rows: the largest directions of each class in fewer bits, and the trace of what is left out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.statistics import at_most_width

_CHUNK = 1 << 26
"""Most numbers in one intermediate array: 256 MB in float32."""

_HALF_RANGE = (1e-2, 3e4)
"""Largest entries between which rows keep their digits in half precision."""

_LARGEST_BYTE = 127


class ReducedRows(NamedTuple):
    """Few rows per class, and the multiple of the identity that stands for the rest."""

    rows_RD: Tensor
    row_class_R: Tensor
    floor_K: Tensor
    left_RD: Tensor
    """At most D rows whose Gram is the sum of what was left out of all classes."""


@torch.no_grad()
def reduce_rows(
    rows_RD: Tensor, row_class_R: Tensor, n_classes: int, rank: int, *, half: bool = False
) -> ReducedRows:
    """At most `rank` rows per class, for the largest directions of its Gram, and f_k I with the trace of the rest.

    As in Frequent Directions (Liberty, KDD 2013), the variance of the largest direction that is left out is taken off
    all that are kept, and counts as left out: the largest directions of few images are longer than those of the
    class. With `half` rows are in half precision where its range allows; what rounding takes off the trace goes into
    f_k.
    """
    width = rows_RD.shape[1]
    if not 1 <= rank < width:
        raise BadInputError(f"the rank of a class must be at least 1 and below the width {width}, got {rank}")
    ranks_K = torch.bincount(row_class_R, minlength=n_classes)
    starts_K = torch.cumsum(ranks_K, 0) - ranks_K
    wide = torch.promote_types(rows_RD.dtype, torch.float32)
    traces_K = torch.zeros(n_classes, dtype=torch.float64, device=rows_RD.device)
    traces_K.index_add_(0, row_class_R, rows_RD.to(wide).square().sum(dim=1).double())
    kept_K = ranks_K.clamp_max(rank)
    new_class_R = torch.repeat_interleave(torch.arange(n_classes, device=rows_RD.device), kept_K)
    firsts_K = torch.cumsum(kept_K, 0) - kept_K
    new_RD = rows_RD.new_empty(int(kept_K.sum()), width, dtype=wide)
    left_RD = rows_RD.new_empty(0, width, dtype=wide)
    for length in sorted(set(ranks_K.tolist())):
        same = torch.nonzero(ranks_K == length).flatten()
        for classes in torch.split(same, max(1, _CHUNK // (max(1, length) * width))):
            places_KP = starts_K[classes][:, None] + torch.arange(length, device=classes.device)
            targets_KP = firsts_K[classes][:, None] + torch.arange(min(length, rank), device=classes.device)
            block_KPD = rows_RD[places_KP].to(wide)
            if length > rank:
                block_KPD, out_KPD = _shortened(_by_direction(block_KPD), rank)
                left_RD = at_most_width(torch.cat([left_RD, out_KPD.flatten(0, 1)]))
            new_RD[targets_KP] = block_KPD
    if half:
        new_RD = _half_if_it_fits(new_RD)
    sums_K = torch.zeros_like(traces_K)
    sums_K.index_add_(0, new_class_R, new_RD.to(wide).square().sum(dim=1).double())
    floor_K = ((traces_K - sums_K) / width).clamp_min(0).to(wide)
    return ReducedRows(new_RD, new_class_R, floor_K, left_RD)


def _by_direction(rows_KPD: Tensor) -> Tensor:
    """Rows with the same Grams, K x P x D, that are orthogonal in each class, the longest first."""
    _, vectors_KPP = torch.linalg.eigh((rows_KPD @ rows_KPD.mT).double())
    turned_KPD: Tensor = vectors_KPP.flip(-1).to(rows_KPD.dtype).mT @ rows_KPD
    return turned_KPD


def _shortened(rows_KPD: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The first `rank` of orthogonal rows less the length of the next, and rows whose Gram is what is left out."""
    squares_KP = rows_KPD.square().sum(dim=2)
    share_KP = squares_KP[:, rank : rank + 1] / squares_KP.clamp_min(torch.finfo(squares_KP.dtype).tiny)
    share_KP = share_KP.clamp_max(1)
    share_KP[:, rank:] = 1
    kept_KPD = (1 - share_KP[:, :rank]).sqrt()[:, :, None] * rows_KPD[:, :rank]
    return kept_KPD, share_KP.sqrt()[:, :, None] * rows_KPD


def as_bytes(rows_RD: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as whole numbers of 8 bits, and what each is multiplied by, so that its length stays as it was."""
    largest_R1 = rows_RD.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(rows_RD.dtype).tiny)
    rounded_RD = (rows_RD / largest_R1).mul_(_LARGEST_BYTE).round_()
    lengths_R = torch.linalg.vector_norm(rounded_RD, dim=1).clamp_min(1)
    return rounded_RD.to(torch.int8), torch.linalg.vector_norm(rows_RD, dim=1) / lengths_R


def _half_if_it_fits(rows_RD: Tensor) -> Tensor:
    """The rows in half precision, rounded towards zero; as they are if they are too large or too small for it."""
    largest = float(rows_RD.abs().max()) if rows_RD.numel() else 1.0
    if not _HALF_RANGE[0] < largest < _HALF_RANGE[1]:
        return rows_RD
    return (rows_RD * (1 - 2**-11)).to(torch.float16)
