"""Ridge regression onto one-hot targets, from moments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.baselines.moments import Moments, solve_positive

STRENGTHS = tuple(10.0**power for power in range(-8, 9))
"""RanPAC's candidates for the strength of the ridge."""

HELD_OUT = 0.2
"""Part of a task's support images that is held out to compare them, as in RanPAC."""


def ridge_weights(moments: Moments, strength: float) -> Tensor:
    """Return (G + l I)^-1 Q, M x C, where Q = sum of h y^T are the class sums."""
    if moments.gram_MM is not None:
        return solve_positive(moments.gram_MM, strength, moments.sums_CM.T)
    duals_NC = solve_positive(moments.products_NN, strength, moments.one_hot_NC())
    return moments.rows_NM.double().T @ duals_NC


def ridge_path(moments: Moments, strengths: Sequence[float]) -> list[Tensor]:
    """Return the weights M x C of every strength, from one symmetric eigendecomposition."""
    if moments.gram_MM is not None:
        values, left = torch.linalg.eigh(moments.gram_MM)
        right = left.T @ moments.sums_CM.T
    else:
        values, vectors = torch.linalg.eigh(moments.products_NN)
        left, right = moments.rows_NM.double().T @ vectors, vectors.T @ moments.one_hot_NC()
    values = values.clamp(min=0)[:, None]
    return [left @ (right / (values + strength)) for strength in strengths]


def squared_error(moments: Moments, weights_MC: Tensor) -> float:
    """Return the squared error of linear predictions, summed over all vectors of `moments`; only sums are needed."""
    columns = max(len(moments.counts_C), weights_MC.shape[1])
    weights_MC = F.pad(weights_MC, (0, columns - weights_MC.shape[1]))
    if moments.gram_MM is None:
        targets_NC = F.one_hot(moments.labels_N, columns)
        return float((moments.rows_NM.double() @ weights_MC - targets_NC).square().sum())
    sums_MC = F.pad(moments.sums_CM.T, (0, columns - len(moments.counts_C)))
    explained = weights_MC * (moments.gram_MM @ weights_MC - 2 * sums_MC)
    return float(explained.sum()) + moments.n


def best_strength(
    train: Moments, held_out: Moments, strengths: Sequence[float] = STRENGTHS
) -> tuple[float, float]:
    """Return the strength whose weights from `train` have the least squared error on `held_out`, and that error."""
    errors = [squared_error(held_out, weights) for weights in ridge_path(train, strengths)]
    best = min(range(len(errors)), key=lambda number: errors[number])
    return strengths[best], errors[best]


def held_out_count(n: int) -> int:
    """Return how many of n images to hold out: a fifth, at least one, but not the only one."""
    return max(int(n > 1), round(HELD_OUT * n))
