"""Dense float64 Simple and Transductive CNAPS heads: one covariance matrix and one inverse per class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def means_and_covariances(features: Array, weights: Array, beta: float = 1.0) -> tuple[Array, Array]:
    """mu'_k and Q'_k of eq:update_first to eq:update_last; one-hot weights give Simple CNAPS."""
    features, weights = np.asarray(features, np.float64), np.asarray(weights, np.float64)
    per_image = weights.sum(axis=1)
    mean = per_image @ features / per_image.sum()
    offset = features - mean
    task = (offset * per_image[:, None]).T @ offset / per_image.sum()
    means, covariances = [], []
    for weight in weights.T:
        n = weight.sum()
        class_mean = weight @ features / n
        offset = features - class_mean
        own = (offset * weight[:, None]).T @ offset / n
        ratio = n / (n + 1)
        means.append(class_mean)
        covariances.append(ratio * own + (1 - ratio) * task + beta * np.eye(features.shape[1]))
    return np.stack(means), np.stack(covariances)


def logits(means: Array, covariances: Array, query: Array) -> Array:
    """-(z - mu_k)^T Q_k^-1 (z - mu_k), Q x K."""
    columns = []
    for mean, covariance in zip(means, covariances, strict=True):
        offset = np.asarray(query, np.float64) - mean
        columns.append(-np.einsum("qd,qd->q", offset, np.linalg.solve(covariance, offset.T).T))
    return np.stack(columns, axis=1)


def simple_logits(
    support: Array, labels: NDArray[np.int64], n_classes: int, query: Array, beta: float = 1.0
) -> Array:
    """Simple CNAPS from features and labels."""
    return logits(*means_and_covariances(support, np.eye(n_classes)[labels], beta), query)


def gmm_logits(means: Array, covariances: Array, query: Array) -> Array:
    """-(z - mu_k)^T Q_k^-1 (z - mu_k) / 2 - log |Q_k| / 2, Q x K."""
    determinants = np.array([np.linalg.slogdet(covariance)[1] for covariance in covariances])
    return 0.5 * logits(means, covariances, query) - 0.5 * determinants


def refined_logits(
    support: Array,
    labels: NDArray[np.int64],
    n_classes: int,
    query: Array,
    min_steps: int,
    max_steps: int,
    beta: float = 1.0,
    score: Callable[[Array, Array, Array], Array] = logits,
) -> tuple[Array, int]:
    """Transductive CNAPS: Algorithm alg:iterative with the number of refits bounded on both sides.

    With `score=gmm_logits` it is GMM-EM.
    """
    hard = np.eye(n_classes)[labels]
    current = score(*means_and_covariances(support, hard, beta), query)
    everything = np.concatenate([np.asarray(support, np.float64), np.asarray(query, np.float64)])
    steps = 0
    while steps < max_steps:
        soft = np.exp(current - current.max(axis=1, keepdims=True))
        soft /= soft.sum(axis=1, keepdims=True)
        before = current.argmax(axis=1)
        current = score(*means_and_covariances(everything, np.concatenate([hard, soft]), beta), query)
        steps += 1
        if steps >= min_steps and (before == current.argmax(axis=1)).all():
            break
    return current, steps
