"""Rivals in closed form, as their papers write them: image by image or recursively, with full inverses, in float64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from sklearn.covariance import oas

from reference.dense_gaussian import Array

Batches = Iterable[tuple[Array, Array]]
"""Vectors N x M and class columns N."""


def one_hot(columns: Array, classes: int) -> Array:
    return np.eye(classes)[columns]


def recursive_ridge(batches: Batches, classes: int, strength: float) -> Array:
    """ACIL's recursion: R = (G + l I)^-1 by Woodbury's identity, and weights corrected by what they miss."""
    weights: Array | None = None
    for vectors, columns in batches:
        if weights is None:
            inverse = np.eye(vectors.shape[1]) / strength
            weights = np.zeros((vectors.shape[1], classes))
        gain = np.linalg.inv(np.eye(len(vectors)) + vectors @ inverse @ vectors.T)
        inverse = inverse - inverse @ vectors.T @ gain @ vectors @ inverse
        weights = weights + inverse @ vectors.T @ (one_hot(columns, classes) - vectors @ weights)
    assert weights is not None
    return weights


def ridge(vectors: Array, columns: Array, classes: int, strength: float) -> Array:
    gram = vectors.T @ vectors + strength * np.eye(vectors.shape[1])
    return np.linalg.inv(gram) @ vectors.T @ one_hot(columns, classes)


def discriminant_scores(batches: Batches, classes: int, shrinkage: str | float, query: Array) -> Array:
    """LDA whose means and within-class scatter are updated image by image (Welford); scikit-learn's shrinkage."""
    rows, labels = [], []
    means = scatter = None
    counts = np.zeros(classes)
    for vectors, columns in batches:
        for vector, column in zip(vectors, columns, strict=True):
            if means is None:
                means, scatter = np.zeros((classes, len(vector))), np.zeros((len(vector), len(vector)))
            counts[column] += 1
            before = vector - means[column]
            means[column] += before / counts[column]
            scatter += np.outer(before, vector - means[column])
            rows.append(vector)
            labels.append(column)
    assert means is not None
    covariance = scatter / counts.sum()
    if shrinkage == "identity":
        shrunk = covariance + np.eye(len(covariance))
    elif not isinstance(shrinkage, str):
        target = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        shrunk = (1 - shrinkage) * covariance + shrinkage * target
    else:
        shrunk, _ = oas(np.array(rows) - means[labels], assume_centered=True)
        if not covariance.any():
            shrunk = np.eye(len(covariance))
    inverse = np.linalg.inv(shrunk)
    return np.array([[f @ inverse @ m - m @ inverse @ m / 2 for m in means] for f in query])


def cosine_scores(vectors: Array, columns: Array, classes: int, query: Array) -> Array:
    means = np.array([vectors[columns == column].mean(axis=0) for column in range(classes)])
    lengths = np.linalg.norm(query, axis=1)[:, None] * np.linalg.norm(means, axis=1)[None]
    return query @ means.T / lengths
