"""Classifiers on features through Avalanche: the same answers as behind `make_baseline`, on any benchmark."""

from __future__ import annotations

import pytest
import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from continual.small_streams import benchmark_of, digest, small_stream

from cl_cnaps.continual.baselines import make_baseline
from cl_cnaps.continual.baselines.feature_strategy import (
    FeatureStrategy,
    cnaps_features,
    first_session_features,
    tune_film,
)
from cl_cnaps.continual.baselines.settings import FirstSessionSettings, FourierMap, ReluMap
from cl_cnaps.continual.stream import accuracy
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import make_model
from cl_cnaps.models.config import CnapsConfig

SMALL = {
    "ranpac": {"map": ReluMap(width=64)},
    "klda": {"map": FourierMap(width=64, gamma="held-out")},
}
EVERY = ["simplecil", "lda", "ridge", "ranpac", "klda", "fsa-film", "joint-probe"]


@pytest.fixture(scope="module")
def model():
    config = CnapsConfig(backbone="resnet18", image_size=32, adaptation="none", generator="paper")
    return make_model(config, load_backbone("resnet18", weights="random", image_size=32))


@pytest.fixture(scope="module")
def stream():
    return small_stream()


@pytest.mark.parametrize("name", EVERY)
def test_the_strategy_answers_what_the_learner_answers(name, model, stream):
    settings = SMALL.get(name, {})
    make = cnaps_features(model)
    first = stream.tasks[0]
    learner = make_baseline(
        name,
        stream,
        on="features",
        features=make(first.support_images, first.support_labels),
        seed=0,
        device=torch.device("cpu"),
        **settings,
    )
    strategy = FeatureStrategy(
        method=name,
        features=make,
        num_classes=6,
        settings=settings,
        evaluator=EvaluationPlugin(accuracy_metrics(experience=True)),
    )
    benchmark = benchmark_of(stream)
    for step, experience in enumerate(benchmark.train_stream):
        learner.learn(step)
        strategy.train(experience)
    metrics = strategy.eval(benchmark.test_stream)
    for number, task in enumerate(stream.tasks):
        found = metrics[f"Top1_Acc_Exp/eval_phase/test_stream/Task{number:03}/Exp{number:03}"]
        assert found == pytest.approx(accuracy(learner.predict(number, "single"), task.query_labels))


def test_evaluating_the_future_is_finite_and_changes_nothing(model, stream):
    strategy = FeatureStrategy(
        method="lda", features=cnaps_features(model), num_classes=6, evaluator=EvaluationPlugin()
    )
    benchmark = benchmark_of(stream)
    assert not strategy.model(stream.tasks[0].query_images).any()
    strategy.train(benchmark.train_stream[0])
    before = digest([vars(strategy.model.classifier.moments)])
    strategy.eval(benchmark.test_stream)
    assert digest([vars(strategy.model.classifier.moments)]) == before
    logits = strategy.model(stream.tasks[2].query_images)
    assert logits.isfinite().all()
    assert set(logits.argmax(dim=1).tolist()) <= {0, 1}


def test_unknown_methods_and_class_ids_are_refused(model, stream):
    with pytest.raises(BadInputError, match="no classifier 'ewc' on features; there are simplecil"):
        FeatureStrategy(method="ewc", features=cnaps_features(model), num_classes=6)
    strategy = FeatureStrategy(method="lda", features=cnaps_features(model), num_classes=2)
    strategy.train(benchmark_of(stream).train_stream[0])
    with pytest.raises(BadInputError, match="class id 3 needs more than num_classes=2"):
        strategy.train(benchmark_of(stream).train_stream[1])


def test_first_session_tuning_separates_the_classes_and_leaves_the_model_alone(model, stream):
    task = stream.tasks[0]
    before = digest(model.state_dict())
    settings = FirstSessionSettings(steps=12, batch_size=8, learning_rate=1e-2)
    start = model.adapt(None)
    film = tune_film(model, start, task.support_images, task.support_labels, settings, seed=0)
    assert digest(model.state_dict()) == before
    assert not any(part.requires_grad for part in (*film.gammas, *film.betas))

    def separation(chosen):
        """Squared distance of the class means in units of the variance within classes."""
        zero, one = (model.embed(task.support_images[task.support_labels == c], chosen) for c in (0, 1))
        within = zero.var(dim=0).sum() + one.var(dim=0).sum()
        return float((zero.mean(dim=0) - one.mean(dim=0)).square().sum() / within)

    assert separation(film) > 1.5 * separation(start)
    make = first_session_features(model, settings, seed=0)
    again = make(task.support_images, task.support_labels)(task.query_images)
    torch.testing.assert_close(again, model.embed(task.query_images, film), rtol=1e-3, atol=1e-4)
