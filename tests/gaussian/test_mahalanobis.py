"""The factored classifier against its dense float64 twin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gaussian.strategies import RandomTask, tasks
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import dense_gaussian

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    class_logits,
    concatenate,
    estimate,
    mahalanobis_logits,
    support_statistics,
    weighted_statistics,
)
from cl_cnaps.gaussian import mahalanobis as solver


def simple(task: RandomTask, dtype: torch.dtype, beta: float = 1.0) -> torch.Tensor:
    support, labels, query = task.tensors(dtype)
    return mahalanobis_logits(estimate(support_statistics(support, labels, task.n_classes), beta=beta), query)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@given(task=tasks(), beta=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=60, deadline=None)
def test_agrees_with_dense_twin(task: RandomTask, beta: float, dtype: torch.dtype, tolerance: float) -> None:
    expected = dense_gaussian.simple_logits(task.support, task.labels, task.n_classes, task.query, beta)
    actual = simple(task, dtype, beta)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual.double().numpy(), expected, rtol=tolerance, atol=tolerance * 1e-2)


@pytest.mark.parametrize("share", [0.0, 0.5, 1e9])
@given(task=tasks())
@settings(max_examples=30, deadline=None)
def test_dense_and_low_rank_forms_agree(task: RandomTask, share: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "_DENSE_FROM", share)
        actual = simple(task, torch.float64)
    expected = dense_gaussian.simple_logits(task.support, task.labels, task.n_classes, task.query)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10, atol=1e-12)


@given(task=tasks(), data=st.data())
@settings(max_examples=30, deadline=None)
def test_order_of_support_and_names_of_classes_do_not_matter(task: RandomTask, data: st.DataObject) -> None:
    expected = simple(task, torch.float64)
    order = np.asarray(data.draw(st.permutations(range(len(task.labels)))))
    names = np.asarray(data.draw(st.permutations(range(task.n_classes))))
    renamed = RandomTask(task.support[order], names[task.labels[order]], task.n_classes, task.query)
    torch.testing.assert_close(simple(renamed, torch.float64)[:, names], expected, rtol=1e-10, atol=1e-12)


@given(task=tasks())
@settings(max_examples=30, deadline=None)
def test_one_hot_weights_are_labels(task: RandomTask) -> None:
    support, labels, query = task.tensors(torch.float64)
    one_hot = torch.nn.functional.one_hot(labels, task.n_classes).to(torch.float64)
    soft = mahalanobis_logits(estimate(weighted_statistics(support, one_hot)), query)
    torch.testing.assert_close(soft, simple(task, torch.float64), rtol=1e-10, atol=1e-12)


@given(task=tasks(), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_soft_weights_agree_with_dense_twin(task: RandomTask, seed: int) -> None:
    support, _, query = task.tensors(torch.float64)
    weights = np.random.default_rng(seed).dirichlet(np.ones(task.n_classes), len(task.labels))
    expected = dense_gaussian.logits(*dense_gaussian.means_and_covariances(task.support, weights), task.query)
    actual = mahalanobis_logits(estimate(weighted_statistics(support, torch.from_numpy(weights))), query)
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-11)


def test_large_variances_keep_their_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(6)
    support = torch.randn(24, 100, generator=generator) * 1000
    query = torch.randn(7, 100, generator=generator) * 1000
    expected = dense_gaussian.simple_logits(support.numpy(), labels.numpy(), 4, query.numpy())
    actual = mahalanobis_logits(estimate(support_statistics(support, labels, 4)), query)
    np.testing.assert_allclose(actual.double().numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("shots", [[4, 4], [1, 3], [5, 9]])
@pytest.mark.parametrize("width", [3, 16])
def test_gradients(shots: list[int], width: int) -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(2).repeat_interleave(torch.tensor(shots))
    support = torch.randn(len(labels), width, dtype=torch.float64, generator=generator)
    support[1] = support[0]  # duplicates must not break the derivative
    query = torch.randn(3, width, dtype=torch.float64, generator=generator)

    def head(support: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        return mahalanobis_logits(estimate(support_statistics(support, labels, 2)), query)

    assert torch.autograd.gradcheck(head, (support.requires_grad_(), query.requires_grad_()))


def test_gradients_through_soft_weights() -> None:
    generator = torch.Generator().manual_seed(2)
    support = torch.randn(6, 4, dtype=torch.float64, generator=generator)
    weights = torch.rand(6, 3, dtype=torch.float64, generator=generator) + 0.1
    query = torch.randn(2, 4, dtype=torch.float64, generator=generator)

    def head(weights: torch.Tensor) -> torch.Tensor:
        return mahalanobis_logits(estimate(weighted_statistics(support, weights)), query)

    assert torch.autograd.gradcheck(head, (weights.requires_grad_(),))


@given(task=tasks())
@settings(max_examples=20, deadline=None)
def test_a_querys_logits_do_not_depend_on_the_others(task: RandomTask) -> None:
    support, labels, query = task.tensors(torch.float64)
    gaussians = estimate(support_statistics(support, labels, task.n_classes))
    alone = torch.cat([mahalanobis_logits(gaussians, row[None]) for row in query])
    torch.testing.assert_close(mahalanobis_logits(gaussians, query), alone, rtol=1e-12, atol=1e-12)


def test_half_precision_features_are_accepted() -> None:
    features = torch.randn(10, 6, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    labels = torch.arange(2).repeat_interleave(5)
    result = mahalanobis_logits(estimate(support_statistics(features, labels, 2)), features)
    assert result.dtype == torch.bfloat16
    assert bool(torch.isfinite(result).all())


def test_no_queries_give_an_empty_result() -> None:
    gaussians = estimate(support_statistics(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]), 2))
    assert mahalanobis_logits(gaussians, torch.zeros(0, 3)).shape == (0, 2)


def test_many_classes_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(4)
    labels = torch.arange(40).repeat_interleave(3)
    support = torch.randn(120, 16, generator=generator, dtype=torch.float64)
    query = torch.randn(5, 16, generator=generator, dtype=torch.float64)
    gaussians = estimate(support_statistics(support, labels, 40))
    whole = mahalanobis_logits(gaussians, query)
    monkeypatch.setattr(solver, "_CHUNK", 1)
    torch.testing.assert_close(mahalanobis_logits(gaussians, query), whole)


@given(task=tasks(), dense=st.booleans())
@settings(max_examples=20, deadline=None)
def test_factors_that_are_kept_answer_alike(task: RandomTask, dense: bool) -> None:
    support, labels, query = task.tensors(torch.float64)
    made = estimate(support_statistics(support, labels, task.n_classes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "_DENSE_FROM", 0.0 if dense else 1e9)
        expected = mahalanobis_logits(made, query)
        ready = made.for_many_queries()
        assert torch.equal(mahalanobis_logits(ready, query), expected)
        kept = dict(ready.kept or {})
        assert kept
        assert made.kept is None
        torch.testing.assert_close(mahalanobis_logits(ready, query[:1]), expected[:1], rtol=1e-10, atol=1e-12)
        assert all((ready.kept or {})[name] is one for name, one in kept.items())
        # Other numbers have factors of their own.
        assert ready.select(torch.arange(task.n_classes)).kept is None
        assert replace(ready, beta=2.0).kept is None


def test_classes_of_several_tasks_side_by_side() -> None:
    generator = torch.Generator().manual_seed(5)
    parts, expected = [], []
    query = torch.randn(6, 12, generator=generator, dtype=torch.float64)
    for shots in ([2, 3], [4, 4, 1]):
        labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
        support = torch.randn(len(labels), 12, generator=generator, dtype=torch.float64)
        parts.append(estimate(support_statistics(support, labels, len(shots))))
        expected.append(mahalanobis_logits(parts[-1], query))
    together = concatenate(parts)
    torch.testing.assert_close(mahalanobis_logits(together, query), torch.cat(expected, dim=1))
    chosen = torch.tensor([3, 0])
    torch.testing.assert_close(
        mahalanobis_logits(together.select(chosen), query), torch.cat(expected, dim=1)[:, chosen]
    )


class TestBadInput:
    features = torch.randn(4, 3, generator=torch.Generator().manual_seed(6))
    labels = torch.tensor([0, 0, 1, 1])

    def test_class_without_support(self) -> None:
        with pytest.raises(BadInputError, match=r"no support images for 1 of 3 classes: 2"):
            support_statistics(self.features, self.labels, 3)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_support_not_finite(self, bad: float) -> None:
        features = self.features.clone()
        features[2, 1] = bad
        with pytest.raises(BadInputError, match="support features contain NaN or Inf, first in row 2"):
            support_statistics(features, self.labels, 2)

    def test_query_not_finite(self) -> None:
        gaussians = estimate(support_statistics(self.features, self.labels, 2))
        with pytest.raises(BadInputError, match="query features contain NaN or Inf"):
            mahalanobis_logits(gaussians, torch.full((1, 3), float("nan")))

    @pytest.mark.parametrize("labels", [[0, 0, 1, 2], [0, -1, 1, 1]])
    def test_labels_out_of_range(self, labels: list[int]) -> None:
        with pytest.raises(BadInputError, match=r"labels must lie in 0\.\.1"):
            support_statistics(self.features, torch.tensor(labels), 2)

    def test_labels_of_another_length(self) -> None:
        with pytest.raises(BadInputError, match="one label per image"):
            support_statistics(self.features, self.labels[:3], 2)

    def test_float_labels(self) -> None:
        with pytest.raises(BadInputError, match="labels must be integers"):
            support_statistics(self.features, self.labels.float(), 2)

    def test_query_of_another_width(self) -> None:
        gaussians = estimate(support_statistics(self.features, self.labels, 2))
        with pytest.raises(BadInputError, match="width 4, the class statistics have width 3"):
            mahalanobis_logits(gaussians, torch.zeros(1, 4))

    def test_empty_support(self) -> None:
        with pytest.raises(BadInputError, match="support set is empty"):
            support_statistics(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), 2)

    def test_overflow_is_an_error_not_an_infinity(self) -> None:
        gaussians = estimate(support_statistics(self.features, self.labels, 2))
        with pytest.raises(BadInputError, match="overflowed"):
            mahalanobis_logits(gaussians, torch.full((1, 3), 1e30))

    def test_beta_must_be_positive(self) -> None:
        with pytest.raises(BadInputError, match="beta must be positive"):
            estimate(support_statistics(self.features, self.labels, 2), beta=0.0)

    def test_unknown_metric(self) -> None:
        gaussians = estimate(support_statistics(self.features, self.labels, 2))
        with pytest.raises(BadInputError, match="unknown metric"):
            class_logits(gaussians, self.features, "taxicab")  # type: ignore[arg-type]


def test_euclidean_is_the_squared_distance_to_the_mean() -> None:
    features = torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]])
    gaussians = estimate(support_statistics(features, torch.tensor([0, 0, 1]), 2))
    # Class means are (1, 0) and (5, 5), the query is (2, 1).
    expected = torch.tensor([[-((2 - 1) ** 2 + 1.0), -((2 - 5) ** 2 + (1 - 5) ** 2)]])
    torch.testing.assert_close(class_logits(gaussians, torch.tensor([[2.0, 1.0]]), "euclidean"), expected)
