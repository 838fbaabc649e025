"""Every rule against its float64 twin, in value and in gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gaussian.strategies import RandomTask, tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dense_gaussian, dense_metrics

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    MEANS_ALONE,
    RULES,
    Gaussians,
    class_logits,
    concatenate,
    distances,
    estimate,
    mahalanobis_logits,
    merge,
    metric,
    metric_names,
    refine,
    support_statistics,
)
from cl_cnaps.gaussian import mahalanobis as solver
from cl_cnaps.gaussian.mahalanobis import solve


def fitted(task: RandomTask, dtype: torch.dtype, beta: float = 1.0) -> tuple[Gaussians, torch.Tensor]:
    support, labels, query = task.tensors(dtype)
    return estimate(support_statistics(support, labels, task.n_classes), beta=beta), query


def dense(task: RandomTask, beta: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    return dense_gaussian.means_and_covariances(task.support, np.eye(task.n_classes)[task.labels], beta)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-4)])
@pytest.mark.parametrize("rule", RULES)
@given(task=tasks(), beta=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=25, deadline=None)
def test_agrees_with_dense_twin(
    rule: str, task: RandomTask, beta: float, dtype: torch.dtype, tolerance: float
) -> None:
    gaussians, query = fitted(task, dtype, beta)
    actual = class_logits(gaussians, query, rule)
    assert actual.dtype == dtype
    expected = dense_metrics.logits(rule, *dense(task, beta), task.query)
    # The sums of a dot product may cancel: what its digits are measured against is their terms.
    scale = float(np.abs(task.query).max() * np.abs(task.support).max() * task.query.shape[1])
    np.testing.assert_allclose(
        actual.double().numpy(), expected, rtol=tolerance, atol=tolerance * 1e-2 * max(1.0, scale)
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 1e9])
@given(task=tasks(), beta=st.sampled_from([0.5, 1.0]))
@settings(max_examples=25, deadline=None)
def test_log_determinants_of_the_dense_and_the_low_rank_form(
    task: RandomTask, beta: float, share: float
) -> None:
    gaussians, query = fitted(task, torch.float64, beta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "_DENSE_FROM", share)
        actual = solve(gaussians, query).log_determinants_K
    expected = [np.linalg.slogdet(covariance)[1] for covariance in dense(task, beta)[1]]
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10, atol=1e-10)


def test_log_determinants_of_merged_classes_of_several_tasks() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 0, 1, 1, 1])
    parts = [
        estimate(
            support_statistics(torch.randn(5, 7, generator=generator, dtype=torch.float64) * scale, labels, 2)
        )
        for scale in (1.0, 3.0, 0.5)
    ]
    gaussians = concatenate([merge(parts[0], parts[1]).compressed(), parts[2]])
    expected = torch.stack([torch.logdet(gaussians.covariance_DD(k)) for k in range(4)])
    torch.testing.assert_close(solve(gaussians, torch.zeros(1, 7).double()).log_determinants_K, expected)


@pytest.mark.parametrize("min_steps", [0, 2])
@given(task=tasks(), extra=st.integers(0, 3), beta=st.sampled_from([0.5, 1.0]))
@settings(max_examples=25, deadline=None)
def test_gmm_em_agrees_with_dense_twin(task: RandomTask, min_steps: int, extra: int, beta: float) -> None:
    expected, steps = dense_gaussian.refined_logits(
        task.support,
        task.labels,
        task.n_classes,
        task.query,
        min_steps,
        min_steps + extra,
        beta,
        dense_gaussian.gmm_logits,
    )
    support, labels, query = task.tensors(torch.float64)
    statistics = support_statistics(support, labels, task.n_classes)
    bounds = {"min_steps": min_steps, "max_steps": min_steps + extra}
    found = refine(statistics, query, **bounds, beta=beta, rule="gmm")  # type: ignore[arg-type]
    assert found.steps == steps
    np.testing.assert_allclose(found.logits_QK.numpy(), expected, rtol=1e-9, atol=1e-9)
    with_gradient = refine(statistics, query.requires_grad_(), **bounds, beta=beta, rule="gmm")  # type: ignore[arg-type]
    np.testing.assert_allclose(with_gradient.logits_QK.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


@given(task=tasks())
@settings(max_examples=50, deadline=None)
def test_root_riemannian_decides_as_squared_mahalanobis(task: RandomTask) -> None:
    gaussians, query = fitted(task, torch.float64)
    squared = mahalanobis_logits(gaussians, query)
    chosen = class_logits(gaussians, query, "root-riemannian").argmax(dim=1)
    # Two distances that differ in the last digit may have the same root: then either class is nearest.
    best = squared.max(dim=1).values
    taken = squared.gather(1, chosen[:, None])[:, 0]
    torch.testing.assert_close(taken, best, rtol=1e-14, atol=1e-14)


def test_root_riemannian_decides_as_squared_mahalanobis_on_many_queries() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(20).repeat_interleave(5)
    gaussians = estimate(support_statistics(torch.randn(100, 64, generator=generator), labels, 20))
    query = torch.randn(2000, 64, generator=generator)
    squared, root = (class_logits(gaussians, query, rule) for rule in ("mahalanobis", "root-riemannian"))
    assert torch.equal(squared.argmax(dim=1), root.argmax(dim=1))
    assert not torch.allclose(squared, root)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", [3, 16])
def test_gradients(rule: str, width: int) -> None:
    generator = torch.Generator().manual_seed(2)
    labels = torch.tensor([0, 0, 0, 1, 1])
    support = torch.randn(5, width, dtype=torch.float64, generator=generator)
    query = torch.randn(3, width, dtype=torch.float64, generator=generator)

    def head(support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return class_logits(estimate(support_statistics(support, labels, 2)), query, rule)

    assert torch.autograd.gradcheck(head, (support.requires_grad_(), query.requires_grad_()))


def test_gradients_through_gmm_em() -> None:
    labels = torch.tensor([0, 0, 1, 1, 1])
    for width in (3, 13):
        generator = torch.Generator().manual_seed(width)
        support = torch.randn(5, width, dtype=torch.float64, generator=generator)
        query = torch.randn(4, width, dtype=torch.float64, generator=generator) * 0.3

        def head(support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
            statistics = support_statistics(support, labels, 2)
            return refine(statistics, query, min_steps=2, max_steps=2, rule="gmm").logits_QK

        assert torch.autograd.gradcheck(head, (support.requires_grad_(), query.requires_grad_()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rule", RULES)
def test_gradients_are_finite_where_a_norm_has_none(rule: str, dtype: torch.dtype) -> None:
    """A one-shot class whose query is its only image, and features that are all zero."""
    support = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 1.0]], dtype=dtype)
    query = support.clone()
    logits = class_logits(
        estimate(support_statistics(support.requires_grad_(), torch.arange(3), 3)),
        query.requires_grad_(),
        rule,  # type: ignore[arg-type]
    )
    torch.nn.functional.cross_entropy(logits, torch.tensor([1, 2, 0])).backward()
    for tensor in (support, query):
        assert tensor.grad is not None
        assert bool(torch.isfinite(tensor.grad).all())
        assert float(tensor.grad.abs().max()) < 100


@pytest.mark.parametrize("rule", sorted(MEANS_ALONE))
def test_rules_of_means_alone_need_no_covariances(rule: str) -> None:
    generator = torch.Generator().manual_seed(3)
    gaussians = estimate(support_statistics(torch.randn(8, 5, generator=generator), torch.arange(8) % 2, 2))
    query = torch.randn(4, 5, generator=generator)
    alone = class_logits(gaussians.without_covariances(), query, rule)
    assert torch.equal(alone, class_logits(gaussians, query, rule))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", sorted(set(RULES) - MEANS_ALONE))
def test_the_other_rules_do(rule: str) -> None:
    generator = torch.Generator().manual_seed(3)
    gaussians = estimate(support_statistics(torch.randn(8, 5, generator=generator), torch.arange(8) % 2, 2))
    query = torch.randn(4, 5, generator=generator)
    alone = class_logits(gaussians.without_covariances(), query, rule)
    assert not torch.allclose(alone, class_logits(gaussians, query, rule))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
def test_half_precision_and_no_queries(rule: str) -> None:
    features = torch.randn(10, 6, generator=torch.Generator().manual_seed(4)).to(torch.bfloat16)
    gaussians = estimate(support_statistics(features, torch.arange(10) % 2, 2))
    found = class_logits(gaussians, features, rule)
    assert found.dtype == torch.bfloat16
    assert bool(torch.isfinite(found).all())
    assert class_logits(gaussians, features[:0], rule).shape == (0, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", RULES)
def test_queries_that_cannot_be_used_are_refused(rule: str) -> None:
    gaussians = estimate(support_statistics(torch.eye(4), torch.arange(4) % 2, 2))
    with pytest.raises(BadInputError, match="query features contain NaN or Inf"):
        class_logits(gaussians, torch.full((1, 4), torch.nan), rule)
    with pytest.raises(BadInputError, match="width 3"):
        class_logits(gaussians, torch.zeros(1, 3), rule)


def test_unbounded_refinement_ends_when_nothing_changes() -> None:
    generator = torch.Generator().manual_seed(5)
    statistics = support_statistics(torch.randn(6, 8, generator=generator), torch.arange(6) % 3, 3)
    query = torch.randn(60, 8, generator=generator) * 2
    free = refine(statistics, query, min_steps=0, max_steps="unbounded")
    assert free.steps > 1
    same = refine(statistics, query, min_steps=0, max_steps=free.steps)
    assert torch.equal(free.logits_QK, same.logits_QK)
    cut = refine(statistics, query, min_steps=0, max_steps=free.steps - 1)
    assert (
        not torch.equal(free.logits_QK.argmax(dim=1), cut.logits_QK.argmax(dim=1)) or cut.steps < free.steps
    )


def test_a_person_adds_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "RULES", dict(RULES))
    monkeypatch.setattr(distances, "MEANS_ALONE", set(MEANS_ALONE))
    generator = torch.Generator().manual_seed(0)
    support, query = torch.randn(6, 4, generator=generator), torch.randn(5, 4, generator=generator)
    gaussians = estimate(support_statistics(support, torch.arange(6) % 3, 3))

    def halved(gaussians: Gaussians, query_QD: torch.Tensor) -> torch.Tensor:
        return mahalanobis_logits(gaussians, query_QD) / 2

    assert metric("halved")(halved) is halved
    assert torch.equal(class_logits(gaussians, query, "halved"), halved(gaussians, query))
    assert set(metric_names()) == {*RULES, "halved"} - {"gmm"}
    assert MEANS_ALONE == distances.MEANS_ALONE
    metric("far", means_alone=True)(halved)
    assert {*MEANS_ALONE, "far"} == distances.MEANS_ALONE
    for taken in ("halved", "l1", "gmm"):
        with pytest.raises(BadInputError, match=f"a metric called '{taken}' already"):
            metric(taken)(halved)


def test_a_metric_that_gives_no_logits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "RULES", dict(RULES))
    gaussians = estimate(support_statistics(torch.eye(4), torch.arange(4), 4))
    metric("turned")(lambda gaussians, query_QD: mahalanobis_logits(gaussians, query_QD).T)
    with pytest.raises(BadInputError, match=r"'turned' must give .* 3 queries and 4 classes, not \(4, 3\)"):
        class_logits(gaussians, torch.zeros(3, 4), "turned")
    metric("lost")(lambda gaussians, query_QD: mahalanobis_logits(gaussians, query_QD) * torch.nan)
    with pytest.raises(BadInputError, match="'lost' gave logits that are NaN or Inf"):
        class_logits(gaussians, torch.zeros(3, 4), "lost")
