"""Transductive CNAPS on a stream: queries without labels, whole sets, and a single head that works."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from continual.small_strategies import evaluated, make
from continual.small_streams import PAIRS, benchmark_of, digest, small_stream
from models.small import TwoLayers, backbone_of, small_model
from reference import dense_gaussian
from torch import Tensor

from cl_cnaps.continual.cnaps_learner import CnapsLearner
from cl_cnaps.continual.strategies import STRATEGIES, CnapsStrategy
from cl_cnaps.continual.stream import Stream, Task, run_stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import refine
from cl_cnaps.models.cnaps import CnapsConfig, CnapsModel, ModelName, make_model

STREAM = small_stream(PAIRS, queries=10)


class Unreadable(Tensor):
    """Labels that cannot be looked at: any operation on them fails."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"query labels were read by {getattr(func, '__name__', func)}")


def learned(benchmark: Any, **options: Any) -> CnapsStrategy:
    options = {"encoding": "moving", "adaptation": "film", "query_stream": benchmark.test_stream} | options
    strategy = make("transductive", **options)
    strategy.train(benchmark.train_stream)
    return strategy


@pytest.mark.parametrize("scope", ["task", "stream"])
@pytest.mark.parametrize("head", ["single", "multi"])
def test_garbage_for_query_labels_changes_neither_what_is_learned_nor_what_is_answered(
    head: str, scope: str
) -> None:
    garbage = [torch.full_like(task.query_labels, 3) for task in STREAM.tasks]
    honest, poisoned = benchmark_of(STREAM), benchmark_of(STREAM, query_labels=garbage)
    ours = learned(honest, head=head, query_scope=scope)
    theirs = learned(poisoned, head=head, query_scope=scope)
    assert digest(ours.model.state_dict()) == digest(theirs.model.state_dict())
    expected = evaluated(ours, honest.test_stream)
    found = evaluated(theirs, poisoned.test_stream)
    for number in range(len(STREAM.tasks)):
        assert torch.equal(expected.outputs(number), found.outputs(number))


@pytest.mark.parametrize("scope", ["task", "stream"])
def test_the_learner_answers_for_queries_whose_labels_cannot_be_read(scope: Any) -> None:
    sealed = [
        Task(
            task.name,
            task.classes,
            task.support_images,
            task.support_labels,
            task.query_images,
            task.query_labels.as_subclass(Unreadable),  # type: ignore[arg-type]
        )
        for task in STREAM.tasks
    ]
    with pytest.raises(AssertionError, match="labels were read"):
        sealed[0].query_labels.sum()
    model = small_model("transductive")
    # Avalanche wants a list of labels for its bookkeeping; it is given another one, and the learner the sealed one.
    blank = [torch.zeros_like(task.query_labels) for task in STREAM.tasks]
    learner = CnapsLearner(_with_query_labels(blank), model, "moving", scope)
    learner._stream = Stream(STREAM.name, tuple(sealed))
    open_learner = CnapsLearner(STREAM, model, "moving", scope)
    for step in range(len(sealed)):
        learner.learn(step)
        open_learner.learn(step)
        for head in ("single", "multi"):
            for task in range(step + 1):
                assert torch.equal(learner.predict(task, head), open_learner.predict(task, head))


def _with_query_labels(labels: list[Tensor]) -> Stream:
    tasks = tuple(
        Task(t.name, t.classes, t.support_images, t.support_labels, t.query_images, given)
        for t, given in zip(STREAM.tasks, labels, strict=True)
    )
    return Stream(STREAM.name, tasks)


def test_query_images_do_change_the_encoding() -> None:
    """Else the tests above would pass without their being used at all."""
    other = small_stream(PAIRS, queries=10, seed=3)
    mixed = tuple(
        Task(a.name, a.classes, a.support_images, a.support_labels, b.query_images, b.query_labels)
        for a, b in zip(STREAM.tasks, other.tasks, strict=True)
    )
    ours = learned(benchmark_of(STREAM))
    theirs = learned(benchmark_of(Stream("mixed", mixed)))
    assert not torch.equal(ours.model.encoding.value, theirs.model.encoding.value)


def test_without_a_query_stream_the_film_model_is_refused_and_frozen_features_are_not() -> None:
    benchmark = benchmark_of(STREAM)
    with pytest.raises(BadInputError, match=r"pass query_stream=benchmark\.test_stream"):
        learned(benchmark, query_stream=None)
    learned(benchmark, query_stream=None, adaptation="none")


def test_a_query_stream_that_is_too_short_is_refused() -> None:
    benchmark = benchmark_of(STREAM)
    with pytest.raises(BadInputError, match="query_stream has 2 experiences, none for training experience 2"):
        learned(benchmark, query_stream=benchmark.test_stream[:2])


def test_logits_are_those_of_refining_the_whole_query_set_on_the_stored_classes() -> None:
    benchmark = benchmark_of(STREAM)
    strategy = learned(benchmark, adaptation="none", query_scope="stream")
    learner = strategy.model
    everything = torch.cat([task.query_images for task in STREAM.tasks])
    together = refine(learner.memory.statistics(learner.memory.keys), learner.embed(everything)).logits_QK
    answers = evaluated(strategy, benchmark.test_stream, batch_size=3)
    # Without classes seen again the stored Q_k are those of each task alone; the refined ones are the same.
    found = torch.cat([answers.outputs(number) for number in range(3)])
    assert torch.equal(found.argmax(dim=1), together.argmax(dim=1))
    first = refine(
        learner.memory.statistics(learner.memory.keys), learner.embed(STREAM.tasks[0].query_images)
    ).logits_QK
    by_task = evaluated(learned(benchmark, adaptation="none"), benchmark.test_stream).outputs(0)
    torch.testing.assert_close(by_task, first, rtol=2e-2, atol=0.5)
    assert not torch.allclose(by_task, found[: len(by_task)], rtol=1e-3)


def test_scope_stream_takes_in_the_queries_of_learned_experiences_alone() -> None:
    """Also in a benchmark without task labels, where only the experience's number tells."""
    for labelled in (True, False):
        benchmark = benchmark_of(STREAM, labelled=labelled)
        strategy = make("transductive", query_scope="stream")
        strategy.train(benchmark.train_stream[:2])
        with_future = evaluated(strategy, benchmark.test_stream)
        without = evaluated(strategy, benchmark.test_stream[:2])
        assert torch.equal(with_future.outputs(0), without.outputs(0))
        assert torch.equal(with_future.outputs(1), without.outputs(1))


class Loud(TwoLayers):
    """Features as large against beta = 1 as those of a trained backbone, so that softmax decides."""

    def forward(self, x: Tensor) -> Tensor:
        return 25 * super().forward(x)


def loud_model(name: ModelName) -> CnapsModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        backbone = backbone_of(Loud())
    return make_model(CnapsConfig(model=name, backbone="loud", adaptation="none"), backbone)


@pytest.mark.parametrize("scope", ["task", "stream"])
def test_the_single_head_is_near_that_of_simple_cnaps(scope: Any) -> None:
    stream = small_stream(((0, 1), (2, 3), (4, 5), (6, 7)), shots=20, queries=20)
    final = {}
    for name in ("simple", "transductive"):
        result = run_stream(CnapsLearner(stream, loud_model(name), "first", scope), stream, ["single"], run=0)
        scores = [row["accuracy"] for row in result.rows if row["step"] == 3]
        final[name] = sum(scores) / len(scores)
    assert final["simple"] > 0.9
    assert final["transductive"] > final["simple"] - 0.02


def test_on_one_task_it_is_the_papers_algorithm_in_dense_float64() -> None:
    task = STREAM.tasks[0]
    benchmark = benchmark_of(Stream("one", (task,)))
    strategy = STRATEGIES["transductive"](model=loud_model("transductive"), evaluator=None)
    strategy.train(benchmark.train_stream)
    support, query = (
        strategy.model.embed(images).numpy() for images in (task.support_images, task.query_images)
    )
    expected, _ = dense_gaussian.refined_logits(support, task.support_labels.numpy(), 2, query, 2, 4)
    found = evaluated(strategy, benchmark.test_stream, batch_size=3).outputs(0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)
