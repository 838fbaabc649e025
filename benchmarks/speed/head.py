"""The factored classifier against the textbook form: one dense covariance and one inverse per class.

Few-shot tasks; classes stored by a continual learner, 100 and 1,000 of them; soft k-means refinement. The dense form
of 1,000 stored classes is timed on some of them and scaled, since every class costs it the same and all of them would
take 6.5 GB. Both forms must give the same logits.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.textbook import (
    dense_covariances,
    dense_logits,
    dense_refinement,
    features_like_a_network,
)
from benchmarks.speed.timing import interleaved, milliseconds
from cl_cnaps.continual.memory import ClassGroup, ClassKey, ClassMemory
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.gaussian import estimate, mahalanobis_logits, refine, support_statistics

CASES = [(5, 5, 10), (20, 5, 10), (50, 10, 10), (10, 100, 100), (100, 100, 10)]
"""(way, shot, queries per class)"""
WIDTHS = [512, 1280]
STORED_WIDTH, STORED_SHOTS, STORED_QUERIES, CLASSES_A_TASK = 1280, 100, 1000, 10
_DENSE_CLASSES = 10
_SAME = 1e-3


def measure(quick: bool) -> Iterator[Figure]:
    """Every case, then the mean of all ratios."""
    ratios = []
    rounds = 1 if quick else 3
    for features in WIDTHS[:1] if quick else WIDTHS:
        for way, shot, queries in CASES[:2] if quick else CASES:
            one = _few_shot(way, shot, queries, features, rounds)
            ratios.append(one.value)
            yield one
    width = 256 if quick else STORED_WIDTH
    for classes in (20,) if quick else (100, 1000):
        stored, memory = _stored(classes, width, rounds)
        ratios.append(stored.value)
        yield stored
        yield memory
    mean = statistics.geometric_mean(ratios)
    yield Figure("head", "all cases, geometric mean", round(mean, 1), bar=20.0)
    yield _refinement(width, rounds)


def _few_shot(way: int, shot: int, queries: int, width: int, rounds: int) -> Figure:
    features = features_like_a_network(way, shot + queries, width, torch.Generator().manual_seed(0))
    support, query = features[:, :shot].reshape(-1, width), features[:, shot:].reshape(-1, width)
    labels = torch.arange(way).repeat_interleave(shot)

    def textbook() -> Tensor:
        return dense_logits(*dense_covariances(support, labels, way), query)

    def factored() -> Tensor:
        return mahalanobis_logits(estimate(support_statistics(support, labels, way)), query)

    return _compared(f"{way}-way {shot}-shot, {width} features", textbook, factored, rounds, bar=2.5)


def _stored(classes: int, width: int, rounds: int) -> tuple[Figure, Figure]:
    """Scoring queries by classes of which nothing but statistics is left."""
    generator = torch.Generator().manual_seed(0)
    memory = ClassMemory()
    means, covariances = [], []
    for first in range(0, classes, CLASSES_A_TASK):
        features = features_like_a_network(CLASSES_A_TASK, STORED_SHOTS, width, generator)
        labels = torch.arange(CLASSES_A_TASK).repeat_interleave(STORED_SHOTS)
        support = features.reshape(-1, width)
        keys = tuple(ClassKey(-1, first + k) for k in range(CLASSES_A_TASK))
        memory = memory.learn(
            ClassGroup(keys, estimate(support_statistics(support, labels, CLASSES_A_TASK)), None)
        )
        if first < _DENSE_CLASSES:
            dense = dense_covariances(support, labels, CLASSES_A_TASK)
            means.append(dense[0])
            covariances.append(dense[1])
    query = features_like_a_network(1, STORED_QUERIES, width, generator)[0]
    mean, covariance = torch.cat(means), torch.cat(covariances)

    def factored() -> Tensor:
        return torch.cat([mahalanobis_logits(group.gaussians, query) for group in memory.groups], dim=1)

    ratio = _compared(
        f"{classes} stored classes, {STORED_SHOTS} shots, {STORED_QUERIES} queries, {width} features",
        lambda: dense_logits(mean, covariance, query),
        factored,
        rounds,
        bar=2.5,
        textbook_scale=classes / len(mean),
    )
    gigabytes = round(memory.nbytes() / 1e9, 2)
    bar = 2.0 if classes == 1000 else None
    dense_gigabytes = round(classes * width**2 * 4 / 1e9, 2)
    return ratio, Figure(
        "head",
        f"{classes} stored classes, memory",
        gigabytes,
        "GB",
        bar,
        at_least=False,
        details={"dense_gigabytes": dense_gigabytes},
    )


def _refinement(width: int, rounds: int) -> Figure:
    way, shot, queries, steps = 20, 5, 200, 4
    generator = torch.Generator().manual_seed(0)
    features = features_like_a_network(way, shot + queries // way, width, generator)
    support, query = features[:, :shot].reshape(-1, width), features[:, shot:].reshape(-1, width)
    labels = torch.arange(way).repeat_interleave(shot)

    def factored() -> Tensor:
        statistics_ = support_statistics(support, labels, way)
        return refine(statistics_, query, min_steps=steps, max_steps=steps).logits_QK.float()

    return _compared(
        f"refinement, {steps} steps, {way}-way {shot}-shot, {queries} queries, {width} features",
        lambda: dense_refinement(support, labels, way, query, steps),
        factored,
        rounds,
        bar=20.0,
    )


def _compared(
    what: str,
    textbook: Callable[[], Tensor],
    factored: Callable[[], Tensor],
    rounds: int,
    bar: float,
    textbook_scale: float = 1.0,
) -> Figure:
    expected, got = textbook(), factored()
    difference = (expected - got[:, : expected.shape[1]]).abs().max() / expected.abs().max()
    if not float(difference) <= _SAME:
        raise ClCnapsError(f"{what}: the two forms differ by {float(difference):.1e}")
    times = interleaved({"textbook": textbook, "factored": factored}, rounds, warm_up=False, at_least=rounds)
    times["textbook"] *= textbook_scale
    ratio = round(times["textbook"] / times["factored"], 1)
    return Figure("head", what, ratio, bar=bar, details=milliseconds(times))
