"""From class Gaussians and queries to logits: one small interface, several metrics.

A metric takes the Gaussians and the queries and returns logits Q x K, larger meaning closer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_features, check_finite
from cl_cnaps.gaussian.gaussians import Gaussians
from cl_cnaps.gaussian.mahalanobis import mahalanobis_logits

Metric = Literal["mahalanobis", "euclidean"]


class LogitFunction(Protocol):
    """Logits of queries under K class Gaussians."""

    def __call__(self, gaussians: Gaussians, query_QD: Tensor, /) -> Tensor:
        """Q x K, larger meaning closer."""


def euclidean_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """-|z - mu_k|^2: prototypical networks, the metric ablation's squared L2."""
    check_features(query_QD, "query", gaussians.width)
    centre_D = gaussians.means_KD.mean(dim=0)
    dtype = query_QD.dtype
    query_QD, means_KD = query_QD - centre_D, gaussians.means_KD - centre_D
    squares = query_QD.square().sum(dim=1)[:, None] + means_KD.square().sum(dim=1) - 2 * query_QD @ means_KD.T
    return check_finite(-squares.clamp_min(0).to(dtype), "the Euclidean distance")


METRICS: Mapping[Metric, LogitFunction] = {"mahalanobis": mahalanobis_logits, "euclidean": euclidean_logits}


def class_logits(gaussians: Gaussians, query_QD: Tensor, metric: Metric = "mahalanobis") -> Tensor:
    """Logits Q x K under the named metric."""
    if metric not in METRICS:
        raise BadInputError(f"unknown metric {metric!r}; there are {', '.join(METRICS)}")
    return METRICS[metric](gaussians, query_QD)
