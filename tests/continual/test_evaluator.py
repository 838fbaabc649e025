"""The one evaluator: as few embeddings and factorisations as can be, and never a stale number."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from continual.small_strategies import evaluated, make
from continual.small_streams import PAIRS, benchmark_of, small_stream
from models.small import small_model
from torch import Tensor

from cl_cnaps.continual.cnaps_learner import CnapsLearner
from cl_cnaps.continual.continual_cnaps import Covariance
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.memory import ClassGroup
from cl_cnaps.continual.stream import accuracy, run_stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.features.kept import KeptBatches
from cl_cnaps.gaussian import Gaussians
from cl_cnaps.models.cnaps import MODELS, CnapsModel, ModelName, TransductiveCnaps

AGAIN = ((0, 1), (1, 2), (3, 4), (0, 4, 5))
"""Classes that come back, in company that splits their groups."""


def count_embeddings(model: CnapsModel) -> Counter[bytes]:
    """Every image that goes through the feature extractor from now on, and how often."""
    seen: Counter[bytes] = Counter()
    embed = model.embed_folded

    def counting(images: torch.Tensor, *args: Any) -> torch.Tensor:
        seen.update(image.numpy().tobytes() for image in images)
        return embed(images, *args)

    model.embed_folded = counting  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize(
    ("encoding", "adaptation"), [("first", "film"), ("moving", "none"), ("averaging", "none")]
)
@pytest.mark.parametrize(("name", "scope"), [("simple", "task"), ("transductive", "stream")])
def test_each_image_is_embedded_once_while_the_features_stay(
    name: ModelName, scope: Any, encoding: EncodingName, adaptation: str
) -> None:
    stream = small_stream()
    model = small_model(name, adaptation=adaptation)
    seen = count_embeddings(model)
    run_stream(CnapsLearner(stream, model, encoding, scope), stream, ["single", "multi"], run=0)
    assert len(seen) == sum(len(task.support_images) + len(task.query_images) for task in stream.tasks)
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("encoding", ["moving", "averaging"])
def test_queries_are_embedded_anew_when_the_features_move(encoding: EncodingName) -> None:
    stream = small_stream()
    model = small_model("simple")
    seen = count_embeddings(model)
    run_stream(CnapsLearner(stream, model, encoding), stream, ["single", "multi"], run=0)
    times = [{seen[image.numpy().tobytes()] for image in task.query_images} for task in stream.tasks]
    assert times == [{3}, {2}, {1}]  # once at every step from the task's own on, for both heads together
    assert {seen[image.numpy().tobytes()] for task in stream.tasks for image in task.support_images} == {1}


@pytest.mark.parametrize("head", ["single", "multi"])
@pytest.mark.parametrize(("name", "scope"), [("simple", "task"), ("transductive", "stream")])
def test_a_strategy_embeds_each_image_once_over_all_its_evaluations(
    name: ModelName, scope: Any, head: str
) -> None:
    stream = small_stream()
    benchmark = benchmark_of(stream)
    strategy = make(
        name, "film", head=head, query_scope=scope, query_stream=benchmark.test_stream, train_mb_size=5
    )
    seen = count_embeddings(strategy.model.model)
    for experience in benchmark.train_stream:
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)
    assert len(seen) == sum(len(task.support_images) + len(task.query_images) for task in stream.tasks)
    assert set(seen.values()) == {1}


@pytest.mark.parametrize(
    ("name", "scope", "encoding"),
    [
        *((name, "task", "moving") for name in MODELS),
        ("transductive", "stream", "averaging"),
        ("transductive", "stream", "first"),
        ("simple", "task", "first"),
    ],
)
def test_it_answers_as_the_strategies_do_with_nothing_kept(
    name: ModelName, scope: Any, encoding: EncodingName
) -> None:
    """At every step, both heads, over classes seen again: a logit kept too long would show here."""
    stream = small_stream(AGAIN, shots=4, queries=3)
    benchmark = benchmark_of(stream)
    learner = CnapsLearner(stream, small_model(name), encoding, scope)
    strategies = {
        head: make(
            name,
            adaptation="film",
            encoding=encoding,
            head=head,
            query_scope=scope,
            query_stream=benchmark.test_stream,
        )
        for head in ("single", "multi")
    }
    for step in range(len(stream.tasks)):
        learner.learn(step)
        for head, strategy in strategies.items():
            strategy.train(benchmark.train_stream[step])
            answers = evaluated(strategy, benchmark.test_stream[: step + 1])
            for task in range(step + 1):
                predicted = learner.predict(task, head)
                assert torch.equal(predicted, answers.outputs(task).argmax(dim=1))
                assert accuracy(predicted, stream.tasks[task].query_labels) == answers.accuracy(task)


@pytest.mark.parametrize("encoding", ["moving", "averaging"])
def test_no_logit_outlives_the_features_it_was_made_from(encoding: EncodingName) -> None:
    """Even that of a class that stays as it is: the queries move past it."""
    stream = small_stream()
    model = small_model("simple")
    with torch.no_grad():
        for parameter in model.adaptation.parameters():
            parameter.mul_(6)  # so strong that features kept from an earlier task would answer differently
    keeping = CnapsLearner(stream, model, encoding)
    kept, fresh = [], []
    for step in range(len(stream.tasks)):
        keeping.learn(step)
        kept.append(keeping.predict(0, "single"))
        asked_late = CnapsLearner(stream, model, encoding)
        for earlier in range(step + 1):
            asked_late.learn(earlier)
        fresh.append(asked_late.predict(0, "single"))
    assert all(torch.equal(a, b) for a, b in zip(kept, fresh, strict=True))
    assert not torch.equal(kept[0], kept[-1])  # else this would prove nothing


def test_asking_one_head_or_task_first_changes_no_answer() -> None:
    stream = small_stream(AGAIN, shots=4, queries=3)
    model = small_model("transductive")
    eager, lazy = (CnapsLearner(stream, model, "moving", "stream") for _ in range(2))
    for step in range(len(stream.tasks)):
        eager.learn(step)
        lazy.learn(step)
        for task in range(step + 1):
            eager.predict(task, "multi")
            eager.predict(task, "single")
    for task in reversed(range(len(stream.tasks))):
        for head in ("single", "multi"):
            assert torch.equal(eager.predict(task, head), lazy.predict(task, head))


def test_the_multi_head_answers_with_the_tasks_own_classes_alone() -> None:
    stream = small_stream(AGAIN, shots=4, queries=3)
    learner = CnapsLearner(stream, small_model("cnaps"), "first")
    for step in range(len(stream.tasks)):
        learner.learn(step)
    for task, classes in enumerate(AGAIN):
        assert set(learner.predict(task, "multi").tolist()) <= set(classes)


def test_tasks_are_learned_in_order_and_predicted_after() -> None:
    learner = CnapsLearner(small_stream(PAIRS), small_model("simple"), "first")
    with pytest.raises(BadInputError, match="0 of 3 tasks have been learned; task 1 is not the next"):
        learner.learn(1)
    learner.learn(0)
    with pytest.raises(BadInputError, match="1 tasks have been learned; task 1 cannot be predicted"):
        learner.predict(1, "multi")
    assert set(learner.predict(1, "single").tolist()) <= {0, 1}  # of a task to come: all classes seen compete


def test_memory_grows_by_the_same_for_every_task_like_the_first() -> None:
    stream = small_stream(((0, 1), (2, 3), (4, 5), (6, 7)))
    learner = CnapsLearner(stream, small_model("transductive"), "averaging", covariance="task")
    sizes = []
    for step in range(len(stream.tasks)):
        learner.learn(step)
        sizes.append(learner.memory_bytes())
    encoding = 64 * 4
    assert sizes == [encoding + (step + 1) * (sizes[0] - encoding) for step in range(4)]


def test_the_multi_head_looks_at_the_classes_of_its_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = small_stream(PAIRS, queries=10)
    learner = CnapsLearner(stream, small_model("simple"), "first", covariance="task")
    asked: list[tuple[int, ...]] = []
    group_logits = learner.cnaps.group_logits

    def counted(group: ClassGroup, features: Tensor) -> Tensor:
        asked.append(tuple(key.label for key in group.keys))
        return group_logits(group, features)

    monkeypatch.setattr(learner.cnaps, "group_logits", counted)
    for step, task in enumerate(stream.tasks):
        learner.learn(step)
        asked.clear()
        learner.predict(step, "multi")
        assert asked == [task.classes]
    asked.clear()
    learner.predict(0, "single")
    assert asked == [task.classes for task in stream.tasks[1:]]  # of its own group they were at hand


@pytest.mark.parametrize("head", ["single", "multi"])
def test_with_the_covariance_of_all_classes_each_head_scores_what_it_needs(
    head: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The single head all tasks in one factorisation a step, the multi head each task's own classes."""
    stream = small_stream(PAIRS, queries=10)
    learner = CnapsLearner(stream, small_model("simple"), "moving", covariance="seen")
    asked: list[tuple[int, int]] = []
    class_logits = learner.cnaps.model.class_logits

    def counted(gaussians: Gaussians, features: Tensor) -> Tensor:
        asked.append((gaussians.n_classes, len(features)))
        return class_logits(gaussians, features)

    monkeypatch.setattr(learner.cnaps.model, "class_logits", counted)
    for step in range(len(stream.tasks)):
        learner.learn(step)
        asked.clear()
        for task in range(step + 1):
            learner.predict(task, head)
        tasks = step + 1
        assert asked == ([(2 * tasks, 20 * tasks)] if head == "single" else [(2, 20)] * tasks)
        if head == "single":
            learner.predict(0, "multi")  # at hand
            assert len(asked) == 1


@pytest.mark.parametrize("encoding", ["first", "moving"])
def test_kept_features_serve_every_model_that_shares_them(encoding: EncodingName, tmp_path: Path) -> None:
    stream = small_stream()

    def rows(model: CnapsModel, keep: bool) -> list[dict[str, Any]]:
        kept = KeptBatches.under(tmp_path, model) if keep else None
        learner = CnapsLearner(stream, model, encoding, kept=kept)
        return run_stream(learner, stream, ["single", "multi"], run=0).rows

    simple, protonet = (small_model(name) for name in ("simple", "protonet"))
    protonet.load_state_dict(simple.state_dict())
    plain = rows(protonet, keep=False)
    assert rows(simple, keep=True) == rows(simple, keep=False)
    seen = count_embeddings(protonet)
    assert rows(protonet, keep=True) == plain
    assert not seen
    for file in tmp_path.glob("*/*.rows"):
        file.write_bytes(file.read_bytes()[:-50])  # cut short: not to be taken for features
    assert rows(protonet, keep=True) == plain
    assert seen


def test_a_group_is_scored_once_a_step_for_the_queries_of_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = small_stream(PAIRS, queries=10)
    learner = CnapsLearner(stream, small_model("simple"), "moving", covariance="task")
    asked: list[int] = []
    group_logits = learner.cnaps.group_logits

    def counted(group: ClassGroup, features: Tensor) -> Tensor:
        asked.append(len(features))
        return group_logits(group, features)

    monkeypatch.setattr(learner.cnaps, "group_logits", counted)
    for step in range(len(stream.tasks)):
        learner.learn(step)
        asked.clear()
        for head in ("single", "multi"):
            for task in range(step + 1):
                learner.predict(task, head)  # type: ignore[arg-type]
        assert asked == [20 * (step + 1)] * (step + 1)


@pytest.mark.parametrize(
    ("encoding", "covariance", "times"),
    [("first", "task", [1, 1, 1]), ("moving", "task", [1, 2, 3]), ("first", "seen", [1, 2, 3])],
)
def test_the_multi_head_refines_again_only_when_something_moves(
    encoding: EncodingName, covariance: Covariance, times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = small_stream(PAIRS)
    learner = CnapsLearner(stream, small_model("transductive"), encoding, covariance=covariance)
    refined: list[int] = []
    logits = TransductiveCnaps.refined_logits

    def counted(self: TransductiveCnaps, *args: Any, **more: Any) -> Tensor:
        refined.append(1)
        return logits(self, *args, **more)

    counts = []
    for step in range(len(stream.tasks)):
        learner.learn(step)
        monkeypatch.setattr(TransductiveCnaps, "refined_logits", counted)
        refined.clear()
        for task in range(step + 1):
            learner.predict(task, "multi")
        counts.append(len(refined))
        monkeypatch.undo()
    assert counts == times
