"""With the covariance of all classes seen, neither the order of classes nor their split into tasks matters."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from continual.small_streams import images_of
from hypothesis import given, settings
from hypothesis import strategies as st
from models.small import small_model
from torch import Tensor

from cl_cnaps.continual import continual_cnaps
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.gaussian import support_statistics
from cl_cnaps.gaussian.mahalanobis import squared_distances
from cl_cnaps.models.loading import features_model

CLASSES = 6


def learner(
    name: str = "simple", covariance: Any = "seen", rank: int | None = None, **model_settings: Any
) -> ContinualCnaps:
    model = small_model(name, adaptation="none", **model_settings)
    if hasattr(model, "fit_log_weights"):
        torch.nn.init.constant_(model.fit_log_weights[2], 1.3)
    return ContinualCnaps(model.double(), ContinualConfig("first", covariance=covariance, memory_rank=rank))


def data(shots: list[int]) -> tuple[Tensor, Tensor]:
    labels = torch.arange(CLASSES).repeat_interleave(torch.tensor(shots))
    return images_of(labels, seed=3), labels


def logits(one: ContinualCnaps) -> Tensor:
    keys = sorted(one.memory.keys, key=lambda key: key.label)
    queries = one.embed(images_of(torch.arange(CLASSES).repeat(3), seed=4))
    return one.logits(queries, keys, covered=True)


@settings(max_examples=15)
@given(
    order=st.permutations(range(12)),
    cuts=st.sets(st.integers(1, 11), max_size=4),
    shots=st.lists(st.integers(2, 4), min_size=CLASSES, max_size=CLASSES),
    metric=st.sampled_from(["mahalanobis", "fit-qda", "fit-lda"]),
)
def test_any_order_and_split_gives_the_logits_of_everything_at_once(
    order: list[int], cuts: set[int], shots: list[int], metric: str
) -> None:
    images, labels = data(shots)
    together = learner(metric=metric)
    together.learn(images, labels, 0)
    rows = [torch.nonzero(torch.arange(len(labels)) % 12 == part).flatten() for part in order]
    bounds = [0, *sorted(cuts), 12]
    apart = learner(metric=metric)
    for task, (start, stop) in enumerate(pairwise(bounds)):
        taken = torch.cat(rows[start:stop])
        if len(taken):
            apart.learn(images[taken], labels[taken], task)
    torch.testing.assert_close(logits(apart), logits(together), rtol=1e-7, atol=1e-7)


def test_refinement_is_order_free_too() -> None:
    images, labels = data([4] * CLASSES)
    together, apart = learner("transductive"), learner("transductive")
    together.learn(images, labels, 0)
    for task, classes in enumerate(((4, 1), (0, 2, 3), (5,))):
        taken = torch.isin(labels, torch.tensor(classes))
        apart.learn(images[taken], labels[taken], task)
    torch.testing.assert_close(logits(apart), logits(together), rtol=1e-6, atol=1e-6)


def test_the_papers_covariance_depends_on_the_split() -> None:
    images, labels = data([4] * CLASSES)
    together, apart = (learner(covariance="task", beta=1e-3) for _ in range(2))
    together.learn(images, labels, 0)
    for task in range(CLASSES):
        apart.learn(images[labels == task], labels[labels == task], task)
    assert not torch.allclose(logits(apart), logits(together), rtol=0.05)


def test_memory_is_flat_beside_the_classes_own() -> None:
    one = learner()
    sizes = []
    for task in range(4):
        labels = torch.full((20,), task)
        one.learn(images_of(labels, seed=task), labels, task)
        sizes.append(one.memory_bytes())
    assert sizes[3] - sizes[2] == sizes[2] - sizes[1]


def test_few_images_are_kept_as_rows_and_many_as_a_matrix() -> None:
    """Both forms are the scatter of all features, also where a class is seen again."""
    one, seen = learner(), []
    for step, (label, shots) in enumerate(((0, 4), (1, 4), (0, 20), (2, 1))):
        labels = torch.full((shots,), label)
        images = images_of(labels, seed=step)
        one.learn(images, labels, step)
        seen.append(one.embed(images))
        assert (one.memory.within_RD is None) == (one.memory.moment is not None) == (step >= 2)
        features_ND = torch.cat(seen)
        centred_ND = features_ND - features_ND.mean(dim=0)
        dense_DD = one.memory.scatter.matrix(torch.float64)
        torch.testing.assert_close(dense_DD, centred_ND.T @ centred_ND, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rank", [None, 1000])
@pytest.mark.parametrize("shots", [1, 12])
def test_a_forgotten_class_leaves_nothing(shots: int, rank: int | None) -> None:
    labels = torch.arange(4).repeat_interleave(shots)
    images = images_of(labels, seed=3)
    one, never = learner(rank=rank), learner(rank=rank)
    one.learn(images, labels, 0)
    assert one.memory.without(ClassKey(-1, 77)) is one.memory
    one.memory = one.memory.without(ClassKey(-1, 2))
    never.learn(images[labels != 2], labels[labels != 2], 0)
    assert (one.memory.moment is None) == (shots == 1)
    torch.testing.assert_close(logits(one), logits(never), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("metric", ["mahalanobis", "fit-qda", "fit-lda"])
def test_many_images_are_classified_as_their_statistics_at_once_say(metric: str) -> None:
    """The matrix of all classes against rows of them, in features scaled by the weights of FiT's heads too."""
    images, labels = data([4] * CLASSES)
    one = learner(metric=metric)
    one.learn(images, labels, 0)
    assert one.memory.moment is not None
    features_ND = one.embed(images)
    together = one.model.estimate(support_statistics(features_ND, labels, CLASSES))
    queries = one.embed(images_of(torch.arange(CLASSES), seed=4))
    torch.testing.assert_close(
        one.stored_logits(queries, one.memory.keys), one.model.class_logits(together, queries)
    )
    made = one.gaussians(one.memory.keys)
    some = made.select(torch.tensor([4, 1]))
    for k, position in enumerate((4, 1)):
        torch.testing.assert_close(some.covariance_DD(k), together.covariance_DD(position))
    torch.testing.assert_close(squared_distances(some, queries), squared_distances(made, queries)[:, [4, 1]])


def test_a_class_of_large_features_is_forgotten_without_a_trace() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(160, 32, generator=generator)
    labels = torch.arange(4).repeat_interleave(40)
    features[labels == 2] *= 1e5
    one, never = (ContinualCnaps(features_model("simple", 32).float(), ContinualConfig()) for _ in range(2))
    one.learn(features, labels, 0)
    one.memory = one.memory.without(ClassKey(-1, 2))
    never.learn(features[labels != 2], labels[labels != 2], 0)
    queries = torch.randn(9, 32, generator=generator)
    keys = never.memory.keys
    expected = never.stored_logits(queries, keys)
    torch.testing.assert_close(one.stored_logits(queries, keys), expected, rtol=2e-3, atol=0)  # in float32


def test_forgetting_of_reduced_classes_takes_their_means_along() -> None:
    images, labels = data([4] * CLASSES)
    one = learner(rank=2)
    one.learn(images, labels, 0)
    one.memory = one.memory.without(ClassKey(-1, 2))
    assert one.memory.moment is not None
    assert torch.isfinite(one.stored_logits(one.embed(images), one.memory.keys)).all()
    rest = one.embed(images)[labels != 2]
    centred = rest - rest.mean(dim=0)
    own = one.embed(images)[labels == 2]
    expected = centred.T @ centred + (own - own.mean(dim=0)).T @ (own - own.mean(dim=0))
    torch.testing.assert_close(one.memory.scatter.matrix(torch.float64), expected)


def test_what_is_kept_for_the_next_queries_ends_with_the_next_task(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = data([4] * CLASSES)
    one, never_kept = learner(), learner()
    for task in range(3):
        taken = labels // 2 == task
        for each in (one, never_kept):
            each.learn(images[taken], labels[taken], task)
        first, again = one.gaussians(one.memory.keys), one.gaussians(one.memory.keys)
        assert again is first
        with monkeypatch.context() as patch:
            patch.setattr(continual_cnaps, "_KEPT_FACTORS", 0)
            assert torch.equal(logits(never_kept), logits(one))
            assert never_kept.gaussians(one.memory.keys) is not never_kept.gaussians(one.memory.keys)
    before = logits(one)
    one.learn(images_of(labels, seed=9), labels, 3)  # the same classes again
    assert not torch.allclose(logits(one), before, rtol=1e-3)
    before, one.model.config = logits(one), replace(one.model.config, beta=5.0)
    assert not torch.allclose(logits(one), before, rtol=1e-3)
    kept = one.gaussians(one.memory.keys).kept
    assert kept
    for copy in (deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert copy._ready is None
        assert torch.equal(logits(copy), logits(one))


def test_a_state_dict_takes_it_along_and_refuses_the_other_kind() -> None:
    images, labels = data([3] * CLASSES)
    one, copy = learner(), learner()
    one.learn(images, labels, 0)
    copy.load_state_dict(one.state_dict())
    assert torch.equal(logits(copy), logits(one))
    assert one.memory.moment is not None
    assert copy.memory.moment is not None
    assert torch.equal(copy.memory.moment.sum_DD, one.memory.moment.sum_DD)
    with pytest.raises(ClCnapsError, match="covariance of seen"):
        learner(covariance="task").load_state_dict(one.state_dict())


def test_what_is_no_covariance() -> None:
    with pytest.raises(BadInputError, match="task or seen"):
        ContinualConfig(covariance="all")  # type: ignore[arg-type]
