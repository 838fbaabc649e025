"""Soft k-means refinement against its dense float64 twin."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gaussian.strategies import RandomTask, tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dense_gaussian

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import estimate, mahalanobis_logits, pool, refine, refits, support_statistics
from cl_cnaps.gaussian.refits import DenseRefit, SpectralRefit


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-3)])
@given(task=tasks(), min_steps=st.integers(0, 3), extra=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_agrees_with_dense_twin(
    task: RandomTask, min_steps: int, extra: int, dtype: torch.dtype, tolerance: float
) -> None:
    bounds = (min_steps, min_steps + extra)
    expected, steps = dense_gaussian.refined_logits(
        task.support, task.labels, task.n_classes, task.query, *bounds
    )
    # Refitting amplifies rounding where a query lies between two classes: the twin is as exact as what one unit in
    # the last place of its input does to it.
    nudged, _ = dense_gaussian.refined_logits(
        np.nextafter(task.support, np.inf), task.labels, task.n_classes, np.nextafter(task.query, 0), *bounds
    )
    exactness = 10 * float(np.abs(nudged - expected).max())
    support, labels, query = task.tensors(dtype)
    statistics = support_statistics(support, labels, task.n_classes)
    result = refine(statistics, query, min_steps=bounds[0], max_steps=bounds[1])
    if dtype == torch.float64:
        assert result.steps == steps
    if result.steps == steps:  # in float32 a tie may be broken the other way round
        np.testing.assert_allclose(
            result.logits_QK.double().numpy(), expected, rtol=tolerance, atol=max(tolerance, exactness)
        )


@given(task=tasks())
@settings(max_examples=20, deadline=None)
def test_the_span_form_agrees_with_pooled_statistics(task: RandomTask) -> None:
    support, labels, query = task.tensors(torch.float64)
    statistics = support_statistics(support, labels, task.n_classes)
    logits = mahalanobis_logits(estimate(statistics), query)
    for _ in range(3):
        pooled = pool(statistics, query, torch.softmax(logits, dim=1))
        logits = mahalanobis_logits(estimate(pooled), query)
    refined = refine(statistics, query, min_steps=3, max_steps=3).logits_QK
    torch.testing.assert_close(refined, logits, rtol=1e-8, atol=1e-8)


@given(task=tasks())
@settings(max_examples=30, deadline=None)
def test_without_queries_it_is_simple_cnaps(task: RandomTask) -> None:
    support, labels, query = task.tensors(torch.float64)
    statistics = support_statistics(support, labels, task.n_classes)
    nothing = query[:0]
    pooled = pool(statistics, nothing, torch.zeros(0, task.n_classes, dtype=torch.float64))
    expected = mahalanobis_logits(estimate(statistics), query)
    torch.testing.assert_close(mahalanobis_logits(estimate(pooled), query), expected, rtol=1e-12, atol=1e-12)
    result = refine(statistics, nothing)
    assert result.logits_QK.shape == (0, task.n_classes)
    assert result.steps == 0


@given(task=tasks())
@settings(max_examples=20, deadline=None)
def test_inputs_stay_as_they_were(task: RandomTask) -> None:
    support, labels, query = task.tensors(torch.float64)
    statistics = support_statistics(support, labels, task.n_classes)
    before, query_before = copy.deepcopy(statistics), query.clone()
    refine(statistics, query)
    assert torch.equal(query, query_before)
    for name in ("counts_K", "means_KD", "rows_RD", "row_class_R"):
        assert torch.equal(getattr(statistics, name), getattr(before, name)), name


def test_gradients_in_fewer_and_in_more_dimensions_than_images() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1])
    for width in (3, 13):
        generator = torch.Generator().manual_seed(width)
        support = torch.randn(5, width, dtype=torch.float64, generator=generator)
        query = torch.randn(4, width, dtype=torch.float64, generator=generator) * 0.3

        def head(support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
            return refine(support_statistics(support, labels, 2), query, min_steps=2, max_steps=2).logits_QK

        assert torch.autograd.gradcheck(head, (support.requires_grad_(), query.requires_grad_()))


def test_stops_when_assignments_settle_and_never_before_min_steps() -> None:
    support = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [9.1, 9.0]])
    statistics = support_statistics(support, torch.tensor([0, 0, 1, 1]), 2)
    query = torch.tensor([[0.2, 0.1], [9.2, 9.3]])
    assert refine(statistics, query, min_steps=0, max_steps=10).steps == 1
    assert refine(statistics, query, min_steps=3, max_steps=10).steps == 3
    assert refine(statistics, query, min_steps=0, max_steps=0).steps == 0


@given(task=tasks())
@settings(max_examples=40, deadline=None)
def test_the_fast_and_the_differentiable_form_agree(task: RandomTask) -> None:
    support, labels, query = task.tensors(torch.float64)
    statistics = support_statistics(support, labels, task.n_classes)
    weights = torch.softmax(mahalanobis_logits(estimate(statistics), query), dim=1)
    for normaliser in ("paper", "released-transductive"):
        plain, fast = (kind.build(statistics, query, normaliser, 1.0) for kind in (DenseRefit, SpectralRefit))
        torch.testing.assert_close(fast(weights), plain(weights), rtol=1e-9, atol=1e-9)


def test_classes_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    statistics = support_statistics(torch.randn(20, 6, generator=generator), torch.arange(5).repeat(4), 5)
    query = torch.randn(9, 6, generator=generator, dtype=torch.float64)
    refit = DenseRefit.build(statistics, query, "paper", 1.0)
    weights = torch.softmax(torch.randn(9, 5, generator=generator, dtype=torch.float64), dim=1)
    whole = refit(weights)
    monkeypatch.setattr(refits, "_CHUNK", 1)
    torch.testing.assert_close(refit(weights), whole)


def test_bad_requests() -> None:
    statistics = support_statistics(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]), 2)
    with pytest.raises(BadInputError, match="min_steps <= max_steps"):
        refine(statistics, torch.zeros(1, 3), min_steps=3, max_steps=2)
    with pytest.raises(BadInputError, match="query features have width 5"):
        refine(statistics, torch.zeros(1, 5))
    with pytest.raises(BadInputError, match="normalisers"):
        refine(statistics, torch.zeros(1, 3), normaliser="released-simple")
