"""Input at the edges of what numbers can hold: large and small scales, half precision, odd shapes, many merges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from reference import dense_gaussian

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    Gaussians,
    class_logits,
    concatenate,
    estimate,
    mahalanobis_logits,
    merge,
    pool,
    refine,
    support_statistics,
    weighted_statistics,
)
from cl_cnaps.gaussian import mahalanobis as solver


def task(
    way: int, shot: int, width: int, scale: float, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(way).repeat_interleave(shot)
    centres = torch.randn(way, width, generator=generator)
    support = torch.randn(len(labels), width, generator=generator) + centres[labels]
    query = torch.randn(9, width, generator=generator) + centres[torch.arange(9) % way]
    return support * scale, labels, query * scale


def fitted(support: torch.Tensor, labels: torch.Tensor, way: int, normaliser: str = "paper") -> Gaussians:
    return estimate(support_statistics(support, labels, way), normaliser)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3, 1e5])
@pytest.mark.parametrize(
    ("way", "shot", "width"), [(1, 40, 64), (2, 64, 64), (2, 200, 32), (2, 1500, 8), (3, 5, 64), (1, 1, 1)]
)
def test_float32_keeps_four_digits_at_any_scale(way: int, shot: int, width: int, scale: float) -> None:
    """Variances far above beta, classes with more rows than dimensions: where subtracting loses digits."""
    support, labels, query = task(way, shot, width, scale)
    expected = dense_gaussian.simple_logits(
        support.double().numpy(), labels.numpy(), way, query.double().numpy()
    )
    actual = mahalanobis_logits(fitted(support, labels, way), query)
    np.testing.assert_allclose(actual.double().numpy(), expected, rtol=1e-4, atol=1e-9)


def test_falling_back_to_float64_keeps_the_gradient() -> None:
    support, labels, query = task(2, 40, 16, 1e3)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = support.to(dtype, copy=True).requires_grad_()
        mahalanobis_logits(fitted(leaf, labels, 2), query.to(dtype)).sum().backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.double())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("scale", [1e10, 1e18, 1e30])
def test_huge_scales_are_answered_rightly_or_refused(scale: float) -> None:
    # More images than dimensions: beta does not matter, and the distance does not change with the scale.
    support, labels, query = (part.double() for part in task(3, 5, 5, 1.0))
    labels = labels.long()
    expected = dense_gaussian.simple_logits(support.numpy(), labels.numpy(), 3, query.numpy(), beta=1e-12)
    actual = mahalanobis_logits(fitted((support * scale).float(), labels, 3), (query * scale).float())
    np.testing.assert_allclose(actual.double().numpy(), expected, rtol=1e-4)
    # Fewer: beta is all there is in some directions, and no digit of it is left.
    support, labels, query = task(3, 5, 40, 1.0)
    with pytest.raises(BadInputError, match="scale the"):
        mahalanobis_logits(fitted(support * scale, labels, 3), query * scale)
    with pytest.raises(BadInputError, match="scale the"):
        refine(support_statistics(support * scale, labels, 3), query * scale)


@pytest.mark.parametrize("scale", [1e-20, 1e-38, 0.0])
def test_vanishing_features_give_finite_logits(scale: float) -> None:
    support, labels, query = task(3, 4, 6, scale)
    logits = mahalanobis_logits(fitted(support, labels, 3), query)
    assert bool((logits <= 0).all())
    assert bool(torch.isfinite(logits).all())
    assert bool(torch.isfinite(refine(support_statistics(support, labels, 3), query).logits_QK).all())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 1e-2)])
def test_half_precision_counts_and_sums_in_float32(dtype: torch.dtype, tolerance: float) -> None:
    """300 images cannot be counted in bfloat16, and 300 features of 300 cannot be summed in float16."""
    support, labels, query = task(2, 301, 4, 1.0)
    support, query = (support + 300).to(dtype), (query + 300).to(dtype)
    gaussians = fitted(support, labels, 2)
    assert gaussians.counts_K.tolist() == [301, 301]
    expected = dense_gaussian.simple_logits(
        support.double().numpy(), labels.numpy(), 2, query.double().numpy()
    )
    for actual in (mahalanobis_logits(gaussians, query), class_logits(gaussians, query)):
        assert actual.dtype == dtype
        np.testing.assert_allclose(actual.double().numpy(), expected, rtol=tolerance, atol=tolerance)
    assert class_logits(gaussians, query, "euclidean").dtype == dtype


def test_strided_features_are_the_same_as_their_copy() -> None:
    support, labels, query = task(3, 4, 10, 1.0)
    strided_support = torch.stack([support, support + 1], dim=2)[..., 0]
    strided_query = query.T.contiguous().T
    assert not strided_support.is_contiguous()
    assert not strided_query.is_contiguous()
    torch.testing.assert_close(
        mahalanobis_logits(fitted(strided_support, labels, 3), strided_query),
        mahalanobis_logits(fitted(support, labels, 3), query),
    )


def test_features_with_a_gradient_can_be_evaluated() -> None:
    support, labels, query = task(3, 4, 10, 1.0)
    support.requires_grad_()
    gaussians = fitted(support, labels, 3)
    expected = mahalanobis_logits(fitted(support.detach(), labels, 3), query)
    torch.testing.assert_close(mahalanobis_logits(gaussians, query).detach(), expected)
    torch.testing.assert_close(mahalanobis_logits(gaussians.compressed(), query).detach(), expected)


@pytest.mark.parametrize("shot", [2, 30])
def test_a_class_can_be_selected_twice(shot: int) -> None:
    support, labels, query = task(3, shot, 6, 1.0)
    statistics = support_statistics(support, labels, 3)
    whole = mahalanobis_logits(estimate(statistics), query)
    chosen = torch.tensor([2, 0, 2])
    selected = estimate(statistics).select(chosen)
    torch.testing.assert_close(mahalanobis_logits(selected, query), whole[:, chosen])
    doubled = statistics.select(chosen)
    assert doubled.counts_K.tolist() == [shot] * 3
    assert torch.equal(doubled.rows_RD[doubled.row_class_R == 0], doubled.rows_RD[doubled.row_class_R == 2])
    assert estimate(statistics).select(torch.tensor([], dtype=torch.int64)).n_classes == 0


@pytest.mark.parametrize(
    "wrong", [torch.tensor([3]), torch.tensor([0, -1]), torch.tensor([True, False, True])]
)
def test_a_class_that_is_not_there_cannot_be_selected(wrong: torch.Tensor) -> None:
    support, labels, _ = task(3, 2, 6, 1.0)
    statistics = support_statistics(support, labels, 3)
    with pytest.raises(BadInputError, match=r"there is no class|list of positions"):
        statistics.select(wrong)
    with pytest.raises(BadInputError, match=r"there is no class|list of positions"):
        estimate(statistics).select(wrong)


@pytest.mark.parametrize("store", [False, True])
def test_merging_a_hundred_times(store: bool) -> None:
    width, way = 12, 4
    stored, mean, covariance, count = None, np.zeros((way, width)), np.zeros((way, width, width)), 0.0
    for seed in range(100):
        support, labels, _ = task(way, 3, width, 1.0, seed)
        new = fitted(support.double(), labels, way)
        stored = new if stored is None else merge(stored, new)
        stored = stored.compressed() if store else stored
        new_mean, new_covariance = dense_gaussian.means_and_covariances(
            support.double().numpy(), np.eye(way)[labels.numpy()]
        )
        mean, covariance = (
            (count * old + 3 * fresh) / (count + 3)
            for old, fresh in ((mean, new_mean), (covariance, new_covariance))
        )
        count += 3
    assert stored is not None
    _, _, query = task(way, 3, width, 1.0, 1000)
    expected = dense_gaussian.logits(mean, covariance, query.double().numpy())
    np.testing.assert_allclose(mahalanobis_logits(stored, query.double()).numpy(), expected, rtol=1e-8)
    if store:
        rows = len(stored.rows_RD) + sum(len(part) for part in stored.shared)
        assert rows <= (way + 1) * width


def test_a_task_of_unequal_shots_is_stored_with_one_shared_factor() -> None:
    support, _, query = task(4, 10, 6, 1.0)
    labels = torch.arange(4).repeat_interleave(torch.tensor([1, 2, 12, 25]))
    gaussians = fitted(support, labels, 4)
    stored = gaussians.compressed()
    assert [len(part) for part in stored.shared] == [6]
    assert len(stored.rows_RD) == 1 + 2 + 6 + 6
    torch.testing.assert_close(mahalanobis_logits(stored, query), mahalanobis_logits(gaussians, query))


def test_classes_without_shared_rows() -> None:
    """What is left after storing may have every row in the classes themselves."""
    gaussians = Gaussians(
        torch.tensor([1.0, 1.0]),
        torch.tensor([[0.0, 0.0], [1.0, 1.0]]),
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([1]),
        (),
        torch.zeros(2, 0),
        1.0,
    )
    logits = mahalanobis_logits(gaussians, torch.tensor([[2.0, 0.0]]))
    torch.testing.assert_close(logits, torch.tensor([[-4.0, -(1 / 2 + 1)]]))
    both = concatenate([gaussians, gaussians])
    torch.testing.assert_close(mahalanobis_logits(both, torch.tensor([[2.0, 0.0]])), logits.repeat(1, 2))


def test_grams_that_do_not_fit_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    support, labels, query = task(4, 6, 5, 1.0)
    gaussians = merge(fitted(support, labels, 4), fitted(support[3:], labels[3:], 4))
    expected = mahalanobis_logits(gaussians, query)
    monkeypatch.setattr(solver, "_KEPT_GRAMS", 0)
    assert torch.equal(mahalanobis_logits(gaussians, query), expected)


def test_soft_labels_of_another_precision() -> None:
    support, _, query = task(2, 3, 5, 1.0)
    weights = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    statistics = weighted_statistics(support, weights)
    assert statistics.means_KD.dtype == torch.float32
    pooled = pool(statistics, query.double(), weights[:1].repeat(9, 1))
    assert pooled.means_KD.dtype == torch.float32
    assert bool(torch.isfinite(mahalanobis_logits(estimate(pooled), query)).all())


def test_refinement_may_start_from_given_logits() -> None:
    support, labels, query = task(3, 4, 6, 1.0)
    statistics = support_statistics(support, labels, 3)
    start = mahalanobis_logits(estimate(statistics), query)
    given = refine(statistics, query, initial_logits_QK=start)
    torch.testing.assert_close(given.logits_QK, refine(statistics, query).logits_QK, rtol=1e-4, atol=1e-4)
    assert torch.equal(
        refine(statistics, query, initial_logits_QK=start, min_steps=0, max_steps=0).logits_QK, start
    )
    other = refine(statistics, query, initial_logits_QK=start.roll(1, dims=1), min_steps=1, max_steps=1)
    assert not torch.allclose(other.logits_QK, given.logits_QK)
    with pytest.raises(BadInputError, match="9 x 3"):
        refine(statistics, query, initial_logits_QK=start[:, :2])
    with pytest.raises(BadInputError, match="NaN"):
        refine(statistics, query, initial_logits_QK=start * float("nan"))


@pytest.mark.parametrize("beta", [0.0, -1.0, float("inf"), float("nan")])
def test_a_beta_that_cannot_be(beta: float) -> None:
    support, labels, _ = task(2, 3, 5, 1.0)
    with pytest.raises(BadInputError, match="beta must be positive and finite"):
        estimate(support_statistics(support, labels, 2), beta=beta)


def test_a_task_without_classes() -> None:
    with pytest.raises(BadInputError, match="at least one class"):
        support_statistics(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), 0)


@pytest.mark.parametrize("normaliser", ["paper", "released-simple", "released-transductive"])
def test_one_class_and_one_dimension(normaliser: str) -> None:
    support, labels, query = task(1, 3, 1, 1.0)
    logits = mahalanobis_logits(fitted(support, labels, 1, normaliser), query)
    assert logits.shape == (9, 1)
    assert bool(torch.isfinite(logits).all())


def test_the_released_rule_for_one_shot_classes_in_one_dimension_is_refused() -> None:
    """The variance over the entries of a vector of one entry, in n - 1 form, is 0 / 0."""
    statistics = support_statistics(torch.tensor([[1.0], [4.0]]), torch.tensor([0, 1]), 2)
    with pytest.raises(BadInputError, match="needs 2 or more"):
        estimate(statistics, "released-simple")
