"""From class Gaussians and queries to logits: one small interface, several rules.

A rule takes the Gaussians and the queries and returns logits Q x K, larger meaning closer. Half precision is
computed in float32 and given back as it came. `metric` adds one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_features, check_finite
from cl_cnaps.gaussian.gaussians import Gaussians
from cl_cnaps.gaussian.mahalanobis import mahalanobis_logits, solve, squared_distances

Rule = str
"""How logits are made, a name in `RULES`: by a metric, or as those of a Gaussian mixture."""

Metric = str
"""A rule other than the mixture's, one of `metric_names()`."""


LogitFunction = Callable[[Gaussians, Tensor], Tensor]
"""Logits Q x K of queries Q x D under K class Gaussians, larger meaning closer."""


def root_riemannian_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """-sqrt((z - mu_k)^T Q_k^-1 (z - mu_k)): the decisions of the squared distance, other gradients.

    (eq. root-riemannian-equation.) A query on the class mean, where a norm has no derivative, gets the zero of its
    subgradients: as a limit of the chain rule it would be infinity times zero.
    """
    squares_QK = squared_distances(gaussians, query_QD)
    apart_QK = squares_QK > torch.finfo(squares_QK.dtype).tiny
    roots_QK = squares_QK.where(apart_QK, torch.ones_like(squares_QK)).sqrt()
    return -roots_QK.where(apart_QK, torch.zeros_like(squares_QK))


def gmm_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """-(z - mu_k)^T Q_k^-1 (z - mu_k) / 2 - log |Q_k| / 2: log-likelihoods under a uniform prior, but for a constant.

    (Section "Relationship to Bregman Soft Clustering".)
    """
    found = solve(gaussians, query_QD)
    return check_finite(-0.5 * (found.distances_QK + found.log_determinants_K), "the log-likelihood")


def half_mahalanobis_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """-(z - mu_k)^T Q^-1 (z - mu_k) / 2: log-likelihoods where all classes have one covariance, but for a constant."""
    return -0.5 * squared_distances(gaussians, query_QD)


def euclidean_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """-|z - mu_k|^2: prototypical networks, the metric ablation's squared L2."""
    check_features(query_QD, "query", gaussians.width)
    centre_D = gaussians.means_KD.mean(dim=0)
    dtype = query_QD.dtype
    query_QD, means_KD = query_QD - centre_D, gaussians.means_KD - centre_D
    squares = query_QD.square().sum(dim=1)[:, None] + means_KD.square().sum(dim=1) - 2 * query_QD @ means_KD.T
    return check_finite(-squares.clamp_min(0).to(dtype), "the Euclidean distance")


def l1_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """-sum_d |z_d - mu_kd|: the metric ablation's absolute distance."""
    query_wide_QD, means_KD = _alike(gaussians, query_QD)
    distances_QK = torch.cdist(query_wide_QD, means_KD, p=1.0)
    return check_finite(-distances_QK.to(query_QD.dtype), "the absolute distance")


def cosine_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """Cosine of the angle between z and mu_k; 0 where either is the zero vector, which has no direction."""
    query_wide_QD, means_KD = _alike(gaussians, query_QD)
    return (_directions(query_wide_QD) @ _directions(means_KD).T).to(query_QD.dtype)


def dot_logits(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
    """z . mu_k: the distance is the negative dot product."""
    query_wide_QD, means_KD = _alike(gaussians, query_QD)
    return check_finite((query_wide_QD @ means_KD.T).to(query_QD.dtype), "the dot product")


_MIXTURE: Rule = "gmm"

RULES: dict[Rule, LogitFunction] = {
    "mahalanobis": mahalanobis_logits,
    "root-riemannian": root_riemannian_logits,
    "euclidean": euclidean_logits,
    "l1": l1_logits,
    "cosine": cosine_logits,
    "dot": dot_logits,
    "fit-qda": gmm_logits,
    "fit-lda": half_mahalanobis_logits,
    _MIXTURE: gmm_logits,
}
FIT_RULES = frozenset({"fit-qda", "fit-lda"})
"""Gaussian log densities whose covariances are weighted by learned numbers (FiT, Shysheya et al. 2023)."""
MEANS_ALONE: set[Rule] = {"euclidean", "l1", "cosine", "dot"}
"""Rules that look at class means and at nothing else."""


def metric_names() -> tuple[Metric, ...]:
    """What the metric ablation substitutes for one another (tab:results:metric-ablations-1), and what was added."""
    return tuple(name for name in RULES if name != _MIXTURE)


def metric(name: Metric, *, means_alone: bool = False) -> Callable[[LogitFunction], LogitFunction]:
    """Register a metric under a name, for `CnapsConfig` and the command line.

    Args:
        name: one that is not there yet.
        means_alone: it looks at class means and at nothing else, so that streams need not keep covariances for it.
    """

    def register(function: LogitFunction) -> LogitFunction:
        if name in RULES:
            raise BadInputError(f"there is a metric called {name!r} already")

        def checked(gaussians: Gaussians, query_QD: Tensor) -> Tensor:
            check_features(query_QD, "query", gaussians.width)
            logits_QK = function(gaussians, query_QD)
            if logits_QK.shape != (len(query_QD), gaussians.n_classes):
                raise BadInputError(
                    f"the metric {name!r} must give one logit to each of {len(query_QD)} queries and "
                    f"{gaussians.n_classes} classes, not {tuple(logits_QK.shape)}"
                )
            if not bool(torch.isfinite(logits_QK).all()):
                raise BadInputError(f"the metric {name!r} gave logits that are NaN or Inf")
            return logits_QK

        RULES[name] = checked
        if means_alone:
            MEANS_ALONE.add(name)
        return function

    return register


def class_logits(gaussians: Gaussians, query_QD: Tensor, rule: Rule = "mahalanobis") -> Tensor:
    """Logits Q x K by the named rule."""
    if rule not in RULES:
        raise BadInputError(f"unknown metric {rule!r}; there are {', '.join(RULES)}")
    return RULES[rule](gaussians, query_QD)


def _alike(gaussians: Gaussians, query_QD: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and means in the wider of their precisions, at least float32."""
    check_features(query_QD, "query", gaussians.width)
    wide = torch.promote_types(torch.promote_types(query_QD.dtype, gaussians.means_KD.dtype), torch.float32)
    return query_QD.to(wide), gaussians.means_KD.to(wide)


def _directions(vectors_ND: Tensor) -> Tensor:
    """Vectors of length one; zero vectors stay as they are, with a finite derivative."""
    squares_N1 = check_finite(vectors_ND.square().sum(dim=1, keepdim=True), "the length of a feature vector")
    there_N1 = squares_N1 > torch.finfo(squares_N1.dtype).tiny
    return vectors_ND * squares_N1.where(there_N1, torch.ones_like(squares_N1)).rsqrt()
