"""The metrics of the ablation, one query and one class at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from reference.dense_gaussian import Array

Similarity = Callable[[Array, Array, Array], float]
"""Of a query z, a class mean mu and its covariance Q; larger is closer."""


def mahalanobis(z: Array, mu: Array, q: Array) -> float:
    return -float((z - mu) @ np.linalg.inv(q) @ (z - mu))


def root_riemannian(z: Array, mu: Array, q: Array) -> float:
    return -math.sqrt(max(0.0, -mahalanobis(z, mu, q)))


def euclidean(z: Array, mu: Array, q: Array) -> float:
    return -math.fsum((z - mu) ** 2)


def l1(z: Array, mu: Array, q: Array) -> float:
    return -math.fsum(abs(z - mu))


def cosine(z: Array, mu: Array, q: Array) -> float:
    lengths = math.sqrt(math.fsum(z**2)) * math.sqrt(math.fsum(mu**2))
    return math.fsum(z * mu) / lengths if lengths else 0.0


def dot(z: Array, mu: Array, q: Array) -> float:
    return math.fsum(z * mu)


def gmm(z: Array, mu: Array, q: Array) -> float:
    return mahalanobis(z, mu, q) / 2 - math.fsum(np.log(np.linalg.eigvalsh(q))) / 2


SIMILARITIES: dict[str, Similarity] = {
    "mahalanobis": mahalanobis,
    "root-riemannian": root_riemannian,
    "euclidean": euclidean,
    "l1": l1,
    "cosine": cosine,
    "dot": dot,
    "gmm": gmm,
    "fit-qda": gmm,
    "fit-lda": lambda z, mu, q: mahalanobis(z, mu, q) / 2,
}


def logits(rule: str, means: Array, covariances: Array, query: Array) -> Array:
    """Q x K."""
    similarity = SIMILARITIES[rule]
    return np.array([[similarity(z, *of) for of in zip(means, covariances, strict=True)] for z in query])
