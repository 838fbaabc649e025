"""Classes whose scatter was reduced to its largest directions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.reduced import reduced_scatter
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    Gaussians,
    Scatter,
    Statistics,
    class_logits,
    combine,
    estimate,
    merge,
    refine,
    support_statistics,
)
from cl_cnaps.gaussian.reduction import reduce_rows

from .strategies import RandomTask, tasks


def scatter(statistics: Statistics, k: int) -> Tensor:
    rows = statistics.restored().rows_RD[statistics.row_class_R == k].double()
    floor = 0.0 if statistics.floor_K is None else float(statistics.floor_K[k])
    return rows.T @ rows + floor * torch.eye(statistics.width, dtype=torch.float64)


def traces(statistics: Statistics) -> Tensor:
    return torch.stack([scatter(statistics, k).trace() for k in range(statistics.n_classes)])


def traces_of_q(gaussians: Gaussians) -> Tensor:
    own = torch.zeros(gaussians.n_classes, dtype=torch.float64)
    own.index_add_(0, gaussians.row_class_R, gaussians.rows_RD.double().square().sum(dim=1))
    for weight_K, part in zip(gaussians.shared_weight_KT.T, gaussians.shared, strict=True):
        own += weight_K * part.double().square().sum()
    floor_K = 0.0 if gaussians.floor_K is None else gaussians.floor_K.double()
    return own + gaussians.width * (gaussians.beta + floor_K)


def without_floors(statistics: Statistics) -> Statistics:
    """The same scatters with the multiple of the identity written as rows."""
    assert statistics.floor_K is not None
    n_classes, width = statistics.n_classes, statistics.width
    extra = statistics.floor_K.sqrt()[:, None, None] * torch.eye(width, dtype=statistics.floor_K.dtype)
    statistics = statistics.restored()
    rows = torch.cat([statistics.rows_RD, extra.reshape(-1, width)])
    row_class = torch.cat([statistics.row_class_R, torch.arange(n_classes).repeat_interleave(width)])
    order = torch.argsort(row_class, stable=True)
    return replace(statistics, rows_RD=rows[order], row_class_R=row_class[order], floor_K=None)


def wide(task: RandomTask, scale: float = 1.0) -> Statistics:
    support, labels, _ = task.tensors(torch.float64)
    return support_statistics(scale * support, labels, task.n_classes)


def reduced(statistics: Statistics, rank: int) -> Statistics:
    return statistics.reduced(rank)[0] if rank < statistics.width else statistics.compressed()


@given(tasks(), st.integers(1, 12))
def test_the_scatter_is_the_reference_s(task: RandomTask, rank: int) -> None:
    whole = wide(task)
    if rank >= whole.width:
        return
    found = reduce_rows(whole.rows_RD, whole.row_class_R, whole.n_classes, rank)
    exact = replace(whole, rows_RD=found.rows_RD, row_class_R=found.row_class_R, floor_K=found.floor_K)
    stored, left = whole.reduced(rank)
    kept = torch.zeros(whole.width, whole.width, dtype=torch.float64)
    for k in range(task.n_classes):
        full = scatter(whole, k)
        expected = reduced_scatter(full.numpy(), rank)
        size = 1 + np.trace(expected)
        np.testing.assert_allclose(scatter(exact, k).numpy(), expected, atol=1e-8 * size)
        np.testing.assert_allclose(scatter(stored, k).numpy(), expected, atol=0.02 * size)  # bytes
        rows = exact.rows_RD[exact.row_class_R == k]
        kept += full - rows.T @ rows
    torch.testing.assert_close(left.T @ left, kept, rtol=0, atol=1e-8 * (1 + float(kept.trace())))


@given(tasks(), st.integers(1, 12), st.sampled_from([torch.float32, torch.float64]), st.integers(0, 2**31))
def test_merging_keeps_counts_means_and_traces(
    task: RandomTask, rank: int, dtype: torch.dtype, seed: int
) -> None:
    support, labels, _ = task.tensors(dtype)
    second = support[torch.randperm(len(support), generator=torch.Generator().manual_seed(seed))] + 1
    parts = [support_statistics(images, labels, task.n_classes) for images in (support, second)]
    merged = reduced(combine(*(reduced(part, rank) for part in parts)), rank)
    whole = combine(*parts)
    torch.testing.assert_close(merged.counts_K, whole.counts_K, rtol=0, atol=0)
    torch.testing.assert_close(merged.means_KD, whole.means_KD, rtol=0, atol=0)
    torch.testing.assert_close(traces(merged), traces(whole), rtol=2e-6, atol=1e-6)
    gaussians = [estimate(part) for part in parts]
    stored = merge(*(one.compressed(rank) for one in gaussians)).compressed(rank)
    joint = merge(*gaussians)
    torch.testing.assert_close(stored.counts_K, joint.counts_K, rtol=0, atol=0)
    torch.testing.assert_close(stored.means_KD, joint.means_KD, rtol=0, atol=0)
    torch.testing.assert_close(traces_of_q(stored), traces_of_q(joint), rtol=1e-5, atol=1e-6)
    if rank < whole.width:
        assert torch.bincount(stored.row_class_R, minlength=1).max() <= rank
        assert torch.bincount(merged.row_class_R, minlength=1).max() <= rank


@settings(deadline=None)
@given(tasks(), st.integers(1, 12), st.sampled_from(["mahalanobis", "gmm"]))
def test_logits_and_refinement_are_those_of_the_scatter_written_out(
    task: RandomTask, rank: int, rule: str
) -> None:
    whole = wide(task)
    if rank >= whole.width:
        return
    stored = reduced(replace(whole, counts_K=torch.full_like(whole.counts_K, 7.0)), rank)
    plain = without_floors(stored.levelled())
    query = task.tensors(torch.float64)[2]
    expected = class_logits(estimate(plain), query, rule)
    torch.testing.assert_close(class_logits(estimate(stored), query, rule), expected, rtol=1e-7, atol=1e-7)
    expected = refine(plain, query, rule=rule, max_steps=2).logits_QK
    found = refine(stored, query, rule=rule, max_steps=2).logits_QK
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    differentiable = query.clone().requires_grad_()
    found = refine(stored, differentiable, rule=rule, max_steps=2).logits_QK
    torch.testing.assert_close(found.detach(), expected, rtol=1e-6, atol=1e-6)


@settings(deadline=None)
@given(tasks(), st.integers(1, 12))
def test_what_was_left_out_is_given_to_all_classes_in_its_own_form(task: RandomTask, rank: int) -> None:
    whole = wide(task)
    if rank >= whole.width:
        return
    stored, left = whole.reduced(rank)
    assert stored.floor_K is not None
    known = Scatter(whole.task_rows(), whole.total, stored.floor_K.sum(), left)
    total = whole.task_rows().T @ whole.task_rows() / whole.total
    rest = (left.T @ left / whole.total).numpy()
    gaussians = estimate(stored, beta=2.0, scatter=known)
    for k in range(task.n_classes):
        n = float(whole.counts_K[k])
        rows = stored.restored().rows_RD[stored.row_class_R == k].double().numpy()
        expected = rows.T @ rows / (n + 1) + total.numpy() / (n + 1) + 2 * np.eye(whole.width)
        expected += n / (n + 1) * rest
        np.testing.assert_allclose(gaussians.covariance_DD(k).numpy(), expected, rtol=1e-6, atol=1e-6)


def test_classes_merged_over_tasks_take_no_more_rows_than_the_rank() -> None:
    features = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4).repeat_interleave(10)
    first, second = (estimate(support_statistics(features + shift, labels, 4)) for shift in (0.0, 1.0))
    merged = merge(first.compressed(3), second.compressed(3)).compressed(3)
    assert merged.shared == ()
    assert merged.rows_RD.shape == (12, 16)
    assert merged.rows_RD.dtype == torch.float16
    assert len(first.compressed(3).shared[0]) == 12


def test_rows_out_of_the_range_of_half_precision_stay_as_they_are() -> None:
    for scale in (1e6, 1e-4):
        rows = scale * torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
        one_class = torch.zeros(8, dtype=torch.int64)
        assert reduce_rows(rows, one_class, 1, 3, half=True).rows_RD.dtype == torch.float32


@pytest.mark.parametrize("rank", [0, 16])
def test_a_rank_must_leave_something_out(rank: int) -> None:
    with pytest.raises(BadInputError, match="below the width 16"):
        reduce_rows(torch.randn(8, 16), torch.zeros(8, dtype=torch.int64), 1, rank)
