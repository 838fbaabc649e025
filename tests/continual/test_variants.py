"""Metrics and variants on stored statistics, for one head and for many."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from continual.small_streams import PAIRS, small_stream
from models.small import small_model

from cl_cnaps.continual.cnaps_learner import CnapsLearner
from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.continual.stream import run_stream
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.names import VARIANTS

STREAM = small_stream(PAIRS, queries=10)
SETTINGS: list[dict[str, Any]] = [
    *({"metric": metric} for metric in ("dot", "cosine", "l1", "root-riemannian")),
    *({"variant": variant} for variant in VARIANTS),
    {"variant": "feot", "metric": "cosine"},
]


def model_of(settings: dict[str, Any]) -> CnapsModel:
    variant = settings.get("variant", "plain")
    return small_model(VARIANTS[variant].model if variant in VARIANTS else "simple", **settings)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(settings.values()))
def test_on_one_task_both_heads_answer_as_the_few_shot_model(settings: dict[str, Any]) -> None:
    model, task = model_of(settings), STREAM.tasks[0]
    learner = CnapsLearner(STREAM, model, "first")
    learner.learn(0)
    with torch.no_grad():
        expected = model(task.support_images, task.support_labels, task.query_images, 2).argmax(dim=1)
    assert torch.equal(learner.predict(0, "multi"), expected)
    assert torch.equal(learner.predict(0, "single"), expected)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(settings.values()))
def test_a_whole_stream_is_scored(settings: dict[str, Any]) -> None:
    learner = CnapsLearner(STREAM, model_of(settings), "averaging")
    result = run_stream(learner, STREAM, ["single", "multi"], run=0)
    assert len(result.rows) == 2 * (1 + 2 + 3)


def test_root_riemannian_decides_as_squared_mahalanobis_on_a_stream() -> None:
    squared, root = (
        run_stream(
            CnapsLearner(STREAM, small_model("simple", metric=metric), "first"), STREAM, ["single"], run=0
        ).rows
        for metric in ("mahalanobis", "root-riemannian")
    )
    assert squared == root


def test_what_is_kept_is_what_the_metric_needs() -> None:
    memories = {}
    for metric in ("cosine", "mahalanobis"):
        learner = CnapsLearner(STREAM, small_model("simple", metric=metric), "first")
        learner.learn(0)
        memories[metric] = learner.memory_bytes()
    assert memories["cosine"] < memories["mahalanobis"]


def test_classes_seen_again_are_merged_for_mixtures_too() -> None:
    task = STREAM.tasks[0]
    config = ContinualConfig(covariance="task")
    learner = ContinualCnaps(small_model("simple", adaptation="none", variant="gmm"), config)
    for number in range(2):
        learner.learn(task.support_images, task.support_labels, number)
    keys = [ClassKey(-1, label) for label in (0, 1)]
    once = ContinualCnaps(small_model("simple", adaptation="none", variant="gmm"), config)
    features = once.learn(task.support_images, task.support_labels, 0)
    # The average of two equal Gaussians is that Gaussian, with its determinant.
    torch.testing.assert_close(
        learner.logits(features, keys, covered=True),
        once.logits(features, keys, covered=True),
        rtol=1e-4,
        atol=1e-4,
    )


def test_what_was_learned_with_another_metric_or_variant_is_refused() -> None:
    learner = ContinualCnaps(small_model("simple", adaptation="none", metric="cosine"))
    learner.learn(STREAM.tasks[0].support_images, STREAM.tasks[0].support_labels, 0)
    for settings in ({}, {"variant": "gmm"}):
        other = ContinualCnaps(small_model("simple", adaptation="none", **settings))
        with pytest.raises(ClCnapsError, match="variant plain, metric cosine"):
            other.load_state_dict(learner.state_dict())
