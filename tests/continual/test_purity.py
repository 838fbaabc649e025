"""Evaluating changes nothing, and how it is done changes no answer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from continual.small_strategies import evaluated, make
from continual.small_streams import benchmark_of, digest, small_stream

from cl_cnaps.continual.strategies import CnapsStrategy
from cl_cnaps.models.cnaps import MODELS, ModelName

CASES = [(name, "task") for name in MODELS] + [("transductive", "stream")]


def trained(name: ModelName, scope: str, **options: Any) -> tuple[CnapsStrategy, Any]:
    """With a class seen again and an encoding that moves, on two of three tasks."""
    benchmark = benchmark_of(small_stream(((0, 1), (1, 2), (3, 4)), shots=4, queries=4))
    strategy = make(
        name,
        adaptation="film",
        encoding="averaging",
        query_scope=scope,
        query_stream=benchmark.test_stream,
        **options,
    )
    strategy.model.double()  # refinement works in float64: rounding its results would hide differences
    strategy.train(benchmark.train_stream[:2])
    return strategy, benchmark


@pytest.mark.parametrize("head", ["single", "multi"])
@pytest.mark.parametrize(("name", "scope"), CASES)
def test_evaluation_leaves_every_bit_of_the_state(name: ModelName, scope: str, head: str) -> None:
    strategy, benchmark = trained(name, scope, head=head)
    state, memory = digest(strategy.model.state_dict()), strategy.model.memory
    adaptations = strategy.model.adaptations
    strategy.eval(benchmark.test_stream)
    strategy.eval(benchmark.train_stream)
    assert digest(strategy.model.state_dict()) == state
    assert strategy.model.memory is memory
    assert strategy.model.adaptations == adaptations
    assert not strategy.model.training


def test_the_digest_sees_a_change_of_what_was_learned() -> None:
    strategy, benchmark = trained("simple", "task")
    state = digest(strategy.model.state_dict())
    strategy.train(benchmark.train_stream[2])
    assert digest(strategy.model.state_dict()) != state


@pytest.mark.parametrize("head", ["single", "multi"])
@pytest.mark.parametrize(("name", "scope"), CASES)
def test_order_of_tasks_and_batch_size_change_no_bit(name: ModelName, scope: str, head: str) -> None:
    strategy, benchmark = trained(name, scope, head=head)
    experiences = list(benchmark.test_stream)
    usual = evaluated(strategy, experiences, batch_size=64)
    again = evaluated(strategy, experiences[::-1], batch_size=1)
    for number in range(3):
        assert torch.equal(usual.outputs(number), again.outputs(number))
    if scope == "task" or head == "multi":
        alone = evaluated(strategy, experiences[1], batch_size=5)
        assert torch.equal(usual.outputs(1), alone.outputs(1))


def test_batch_size_of_training_changes_no_bit() -> None:
    states = {
        size: digest(trained("transductive", "task", train_mb_size=size)[0].model.memory.state())
        for size in (1, 5, 64)
    }
    assert len(set(states.values())) == 1


def test_training_and_test_experiences_of_one_number_can_be_evaluated_together() -> None:
    """They have different images, and with scope `stream` are refined together."""
    strategy, benchmark = trained("transductive", "stream")
    both = evaluated(strategy, [benchmark.test_stream[0], benchmark.train_stream[0]])
    swapped = evaluated(strategy, [benchmark.train_stream[0], benchmark.test_stream[0]])
    assert len(both.outputs(0, "train")) == 8
    assert len(both.outputs(0, "test")) == 8
    for stream in ("train", "test"):
        assert torch.equal(both.outputs(0, stream), swapped.outputs(0, stream))
