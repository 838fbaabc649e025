"""CNAPS strategies on benchmarks that Avalanche's own builders make, with its metrics and loggers."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.evaluation.metrics import (
    accuracy_metrics,
    bwt_metrics,
    confusion_matrix_metrics,
    forgetting_metrics,
    forward_transfer_metrics,
    loss_metrics,
    timing_metrics,
)
from avalanche.logging import InteractiveLogger, TensorboardLogger, TextLogger
from avalanche.training.plugins import EvaluationPlugin
from continual.small_strategies import Answers, make
from continual.small_streams import Images, benchmark_of, images_of, small_stream, support_and_query
from models.small import small_model

from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.continual.strategies import STRATEGIES, CnapsStrategy
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import MODELS, ModelName


def counts(strategy: CnapsStrategy) -> dict[ClassKey, float]:
    memory = strategy.model.memory
    return {
        key: float(count)
        for group in memory.groups
        for key, count in zip(group.keys, group.gaussians.counts_K, strict=True)
    }


def test_there_is_a_strategy_for_every_model() -> None:
    assert set(STRATEGIES) == set(MODELS)


@pytest.mark.parametrize("head", ["single", "multi"])
@pytest.mark.parametrize("name", list(MODELS))
def test_metrics_and_loggers_say_what_was_answered(name: ModelName, head: str, tmp_path: Path) -> None:
    train, test = support_and_query()
    benchmark = nc_benchmark(
        train, test, n_experiences=3, task_labels=True, seed=1, fixed_class_order=[*range(6)]
    )
    answers, text = Answers(), io.StringIO()
    evaluator = EvaluationPlugin(
        accuracy_metrics(minibatch=True, epoch=True, experience=True, stream=True),
        loss_metrics(epoch=True, experience=True, stream=True),
        forgetting_metrics(experience=True, stream=True),
        bwt_metrics(experience=True, stream=True),
        timing_metrics(epoch=True, experience=True),
        confusion_matrix_metrics(num_classes=6, save_image=False, stream=True),
        loggers=[TextLogger(text), InteractiveLogger(), TensorboardLogger(tmp_path)],
    )
    strategy = make(
        name,
        head=head,
        evaluator=evaluator,
        plugins=[answers],
        query_stream=benchmark.test_stream,
        train_mb_size=5,
    )
    learned: dict[int, float] = {}
    for step, experience in enumerate(benchmark.train_stream):
        strategy.train(experience)
        answers.clear()
        metrics = strategy.eval(benchmark.test_stream)
        learned[step] = answers.accuracy(step)
        for number in range(step + 1):
            found = metrics[f"Top1_Acc_Exp/eval_phase/test_stream/Task00{number}/Exp00{number}"]
            assert found == pytest.approx(answers.accuracy(number))
    final = [answers.accuracy(number) for number in range(3)]
    # Over all tasks, though Avalanche calls it by the last.
    assert metrics["Top1_Acc_Stream/eval_phase/test_stream/Task002"] == pytest.approx(sum(final) / 3)
    transfer = sum(final[i] - learned[i] for i in range(2)) / 2
    assert metrics["StreamBWT/eval_phase/test_stream"] == pytest.approx(transfer)
    assert metrics["StreamForgetting/eval_phase/test_stream"] == pytest.approx(-transfer)
    matrix = metrics["ConfusionMatrix_Stream/eval_phase/test_stream"]
    assert float(matrix.sum()) == len(test)
    assert float(matrix.diagonal().sum()) / len(test) == pytest.approx(sum(final) / 3)
    assert "Top1_Acc_Exp" in text.getvalue()
    assert list(tmp_path.glob("events.out.tfevents*"))
    if name != "cnaps":  # whose generated classifier is untrained here
        assert sum(final) / 3 > 0.8


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_every_image_is_counted_once(batch_size: int) -> None:
    labels = torch.arange(6).repeat_interleave(50)
    data = Images(images_of(labels, 5).float() / 255, labels)
    benchmark = nc_benchmark(data, data, n_experiences=3, task_labels=False, seed=0)
    strategy = make(train_mb_size=batch_size)
    strategy.train(benchmark.train_stream)
    assert counts(strategy) == {ClassKey(-1, c): 50.0 for c in range(6)}


def test_a_class_seen_again_adds_up_and_an_image_given_twice_changes_its_mean_not() -> None:
    stream = small_stream(((0, 1), (1, 2), (1,)))
    strategy = make()
    strategy.train(benchmark_of(stream).train_stream)
    assert counts(strategy) == {ClassKey(-1, 0): 8, ClassKey(-1, 1): 24, ClassKey(-1, 2): 8}
    images = torch.cat([task.support_images[task.support_labels == 1] for task in stream.tasks])
    place = strategy.model.memory.keys.index(ClassKey(-1, 1))
    means = torch.cat([group.gaussians.means_KD for group in strategy.model.memory.groups])
    torch.testing.assert_close(means[place], strategy.model.embed(images).mean(dim=0))


@pytest.mark.parametrize("head", ["single", "multi"])
def test_without_task_labels_experiences_are_the_tasks_of_the_multi_head(head: str) -> None:
    answers = Answers()
    strategy = make(head=head, plugins=[answers])
    benchmark = benchmark_of(small_stream(), labelled=False)
    strategy.train(benchmark.train_stream)
    strategy.eval(benchmark.test_stream)
    assert strategy.model.classes_of_task.keys() == ({0} if head == "single" else {0, 1, 2})
    assert all(answers.accuracy(number) > 0.8 for number in range(3))


@pytest.mark.parametrize("head", ["single", "multi"])
def test_class_ids_that_start_anew_in_each_experience(head: str) -> None:
    train, test = support_and_query()
    benchmark = nc_benchmark(
        train, test, n_experiences=3, task_labels=True, seed=1, class_ids_from_zero_in_each_exp=True
    )
    answers = Answers()
    strategy = make(head=head, class_ids="per-task", plugins=[answers])
    strategy.train(benchmark.train_stream)
    strategy.eval(benchmark.test_stream)
    assert counts(strategy) == {ClassKey(task, label): 8 for task in range(3) for label in range(2)}
    assert all(answers.accuracy(number) > 0.8 for number in range(3))
    # The single head has a column, never right, for every class of another task.
    assert answers.outputs(0).shape[1] == (2 if head == "multi" else 2 + 4)


def test_a_class_of_another_task_is_never_taken_for_a_label_of_the_future() -> None:
    """Task 1 has more classes than task 0: ids 2 and 3 must not meet the columns of task 0's classes."""
    stream = small_stream(((0, 1), (0, 1, 2, 3)))
    answers = Answers()
    strategy = make(class_ids="per-task", plugins=[answers])
    benchmark = benchmark_of(stream)
    strategy.train(benchmark.train_stream[0])
    strategy.eval(benchmark.test_stream[1])
    assert answers.accuracy(1) == 0.0
    assert all(math.isfinite(loss) for loss in answers.losses)


@pytest.mark.parametrize("head", ["single", "multi"])
@pytest.mark.parametrize("name", ["simple", "transductive"])
def test_experiences_of_the_future_are_wrong_not_fatal(name: ModelName, head: str) -> None:
    benchmark = benchmark_of(small_stream())
    answers = Answers()
    strategy = make(name, head=head, plugins=[answers], query_scope="stream")
    strategy.train(benchmark.train_stream[0])
    strategy.eval(benchmark.test_stream)
    assert [answers.accuracy(number) for number in (1, 2)] == [0.0, 0.0]
    assert answers.accuracy(0) > 0.8
    assert all(math.isfinite(loss) for loss in answers.losses)


def test_before_anything_is_learned_every_answer_is_class_0() -> None:
    """So that Avalanche's evaluation before training, which forward transfer needs, works and scores chance."""
    benchmark = benchmark_of(small_stream())
    answers = Answers()
    strategy = make(
        plugins=[answers],
        evaluator=EvaluationPlugin(forward_transfer_metrics(experience=True, stream=True)),
        eval_every=0,
    )
    strategy.eval(benchmark.test_stream)
    assert [answers.accuracy(number) for number in range(3)] == [0.5, 0.0, 0.0]
    strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream])
    assert counts(strategy) == {ClassKey(-1, 0): 8, ClassKey(-1, 1): 8}


def test_grey_images_work_and_normalised_ones_are_refused() -> None:
    stream = small_stream()
    strategy = make()
    strategy.train(benchmark_of(stream, grey=True).train_stream[0])
    assert sum(counts(strategy).values()) == 16
    labels = stream.tasks[0].support_labels
    data = Images((stream.tasks[0].support_images.float() / 255 - 0.5) / 0.5, labels)
    benchmark = nc_benchmark(data, data, n_experiences=1, task_labels=False)
    with pytest.raises(BadInputError, match="transform without one"):
        make().train(benchmark.train_stream[0])


def test_a_task_that_fails_leaves_no_trace() -> None:
    stream = small_stream()
    strategy = make(
        "transductive", adaptation="film", encoding="moving", query_stream=benchmark_of(stream).test_stream
    )
    learner = strategy.model
    task = stream.tasks[0]
    learner.learn(task.support_images, task.support_labels, 0, task.query_images)
    before = (
        learner.encoding,
        learner.memory,
        learner.network,
        learner.adaptations,
        dict(learner.classes_of_task),
    )
    with pytest.raises(BadInputError):
        learner.learn(task.support_images, task.support_labels[:3], 1, task.query_images)
    with pytest.raises(BadInputError, match="task 1 has no images"):
        learner.learn(task.support_images[:0], task.support_labels[:0], 1, task.query_images)
    after = (
        learner.encoding,
        learner.memory,
        learner.network,
        learner.adaptations,
        dict(learner.classes_of_task),
    )
    assert before == after


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"head": "both"}, "unknown head 'both'"),
        ({"query_scope": "all"}, "unknown query scope 'all'"),
        ({"encoding": "latest"}, "unknown encoding 'latest'"),
        ({"class_ids": "per_task"}, "class ids are auto, shared, per-task, not 'per_task'"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        make(**options)


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(BadInputError, match="SimpleCnapsStrategy needs a simple model, got protonet"):
        STRATEGIES["simple"](model=small_model("protonet"))


def test_what_was_learned_moves_with_the_weights() -> None:
    stream = small_stream()
    strategy = make("transductive", adaptation="film", query_stream=benchmark_of(stream).test_stream)
    strategy.train(benchmark_of(stream).train_stream[:2])
    learner, images = strategy.model, stream.tasks[0].query_images
    single = learner.logits(learner.embed(images), learner.memory.keys, covered=False)
    assert learner.to("cpu").memory is strategy.model.memory  # nothing to do, nothing done
    learner.double()
    wide = learner.logits(learner.embed(images), learner.memory.keys, covered=False)
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), single, rtol=1e-3, atol=1e-3)
