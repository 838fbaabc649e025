"""Normalisers, merging, storing: the parts of the factored Gaussians a stream relies on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gaussian.strategies import RandomTask, tasks
from hypothesis import given, settings
from reference import dense_gaussian

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    Gaussians,
    combine,
    concatenate,
    estimate,
    mahalanobis_logits,
    merge,
    support_statistics,
)


def fitted(task: RandomTask, offset: float = 0.0) -> Gaussians:
    support, labels, _ = task.tensors(torch.float64)
    return estimate(support_statistics(support + offset, labels, task.n_classes))


@given(task=tasks())
@settings(max_examples=40, deadline=None)
def test_covariances_are_the_papers(task: RandomTask) -> None:
    gaussians = fitted(task)
    _, covariances = dense_gaussian.means_and_covariances(task.support, np.eye(task.n_classes)[task.labels])
    for k in range(task.n_classes):
        np.testing.assert_allclose(gaussians.covariance_DD(k).numpy(), covariances[k], rtol=1e-10, atol=1e-12)


@given(task=tasks())
@settings(max_examples=40, deadline=None)
def test_merging_averages_means_and_covariances_by_count(task: RandomTask) -> None:
    """The equations of Section "Continual Learning", twice in a row, against dense averages."""
    rng = np.random.default_rng(0)
    shares = [rng.integers(1, 9, task.n_classes) for _ in range(2)]
    merged, count = fitted(task), np.bincount(task.labels, minlength=task.n_classes).astype(float)
    mean = merged.means_KD.numpy()
    covariance = np.stack([merged.covariance_DD(k).numpy() for k in range(task.n_classes)])
    for shots in shares:
        labels = np.repeat(np.arange(task.n_classes), shots)
        support = rng.standard_normal((len(labels), task.support.shape[1]))
        new_mean, new_covariance = dense_gaussian.means_and_covariances(
            support, np.eye(task.n_classes)[labels]
        )
        share = shots / (shots + count)
        mean = share[:, None] * new_mean + (1 - share)[:, None] * mean
        covariance = share[:, None, None] * new_covariance + (1 - share)[:, None, None] * covariance
        count = count + shots
        statistics = support_statistics(torch.from_numpy(support), torch.from_numpy(labels), task.n_classes)
        merged = merge(merged, estimate(statistics))
    np.testing.assert_allclose(merged.counts_K.numpy(), count)
    np.testing.assert_allclose(merged.means_KD.numpy(), mean, rtol=1e-10, atol=1e-12)
    expected = dense_gaussian.logits(mean, covariance, task.query)
    actual = mahalanobis_logits(merged, torch.from_numpy(task.query))
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-11)


@given(task=tasks())
@settings(max_examples=40, deadline=None)
def test_storing_takes_at_most_width_rows_a_factor_and_changes_nothing(task: RandomTask) -> None:
    gaussians = merge(merge(fitted(task), fitted(task, 1.0)), fitted(task, -2.0))
    stored = gaussians.compressed()
    width = task.support.shape[1]
    assert int(torch.bincount(stored.row_class_R, minlength=task.n_classes).max()) <= max(width, 0)
    assert sum(len(rows) for rows in stored.shared) <= width
    query = torch.from_numpy(task.query)
    torch.testing.assert_close(
        mahalanobis_logits(stored, query), mahalanobis_logits(gaussians, query), rtol=1e-9, atol=1e-10
    )
    statistics = support_statistics(*task.tensors(torch.float64)[:2], task.n_classes)
    torch.testing.assert_close(
        mahalanobis_logits(estimate(statistics.compressed()), query),
        mahalanobis_logits(estimate(statistics), query),
        rtol=1e-9,
        atol=1e-10,
    )


@given(task=tasks())
@settings(max_examples=30, deadline=None)
def test_combined_statistics_are_those_of_all_images(task: RandomTask) -> None:
    support, labels, _ = task.tensors(torch.float64)
    more = torch.randn(
        len(labels), support.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    parts = [support_statistics(images, labels, task.n_classes) for images in (support, more)]
    together = support_statistics(torch.cat([support, more]), torch.cat([labels, labels]), task.n_classes)
    query = torch.from_numpy(task.query)
    torch.testing.assert_close(
        mahalanobis_logits(estimate(combine(*parts)), query), mahalanobis_logits(estimate(together), query)
    )


def test_memory_of_a_class_is_rank_times_width_not_width_squared() -> None:
    width, way, shot = 640, 5, 10
    features = torch.randn(way * shot, width, generator=torch.Generator().manual_seed(0))
    gaussians = estimate(support_statistics(features, torch.arange(way).repeat_interleave(shot), way))
    held = [gaussians.means_KD, gaussians.rows_RD, gaussians.row_class_R, *gaussians.shared]
    per_class = sum(part.nbytes for part in held) / way
    assert per_class < 4 * width * (2 * shot + 10)
    assert per_class < 0.1 * 4 * width * width


def test_released_normaliser_of_simple_cnaps() -> None:
    generator = torch.Generator().manual_seed(1)
    support = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    labels = torch.tensor([0, 1, 1, 1, 2, 2])
    gaussians = estimate(support_statistics(support, labels, 3), "released-simple")
    task = torch.cov(support.T, correction=1)
    spread = support[0].var(correction=1)
    one_shot = 0.5 * spread * torch.ones(4, 4) + 0.5 * task + torch.eye(4)
    torch.testing.assert_close(gaussians.covariance_DD(0), one_shot)
    ordinary = 0.75 * torch.cov(support[1:4].T, correction=1) + 0.25 * task + torch.eye(4)
    torch.testing.assert_close(gaussians.covariance_DD(1), ordinary)


def test_released_normaliser_of_transductive_cnaps() -> None:
    generator = torch.Generator().manual_seed(2)
    support = torch.randn(5, 4, dtype=torch.float64, generator=generator)
    gaussians = estimate(
        support_statistics(support, torch.tensor([0, 1, 1, 1, 0]), 2), "released-transductive"
    )
    task = torch.cov(support.T, correction=1)
    expected = 0.75 * torch.cov(support[1:4].T, correction=0) + 0.25 * task + torch.eye(4)
    torch.testing.assert_close(gaussians.covariance_DD(1), expected)


def test_a_single_image_works_with_the_released_simple_normaliser_and_is_refused_by_the_other() -> None:
    statistics = support_statistics(torch.randn(1, 4), torch.tensor([0]), 1)
    assert torch.isfinite(
        mahalanobis_logits(estimate(statistics, "released-simple"), torch.zeros(1, 4))
    ).all()
    with pytest.raises(BadInputError, match="at least 2 support images"):
        estimate(statistics, "released-transductive")


def test_what_does_not_fit_together_is_refused() -> None:
    one = estimate(support_statistics(torch.randn(2, 3), torch.tensor([0, 1]), 2))
    with pytest.raises(BadInputError, match="cannot merge 2 classes of width 3"):
        merge(one, estimate(support_statistics(torch.randn(2, 4), torch.tensor([0, 1]), 2)))
    with pytest.raises(BadInputError, match="different feature width"):
        concatenate([one, estimate(support_statistics(torch.randn(2, 4), torch.tensor([0, 1]), 2))])
    with pytest.raises(BadInputError, match="unknown normaliser"):
        estimate(support_statistics(torch.randn(2, 3), torch.tensor([0, 1]), 2), "other")  # type: ignore[arg-type]
