"""A stream taken up between experiences gives the digits of one that was never left."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from continual.small_strategies import evaluated, make
from continual.small_streams import benchmark_of, digest, small_stream

from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.cnaps import MODELS, ModelName

BENCHMARK = benchmark_of(small_stream(((0, 1), (1, 2), (3, 4), (0, 4)), shots=4, queries=3))


def strategy(name: ModelName, encoding: EncodingName = "averaging", **options: Any) -> Any:
    return make(name, adaptation="film", encoding=encoding, query_stream=BENCHMARK.test_stream, **options)


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_same_answers(ours: Any, theirs: Any) -> None:
    expected, found = evaluated(ours, BENCHMARK.test_stream), evaluated(theirs, BENCHMARK.test_stream)
    for number in range(len(BENCHMARK.test_stream)):
        assert torch.equal(expected.outputs(number), found.outputs(number))


@pytest.mark.parametrize(
    ("name", "encoding"),
    [*((name, "averaging") for name in MODELS), ("transductive", "moving"), ("simple", "first")],
)
def test_a_state_dict_holds_all_that_was_learned(name: ModelName, encoding: EncodingName) -> None:
    straight, left = strategy(name, encoding), strategy(name, encoding)
    straight.train(BENCHMARK.train_stream)
    left.train(BENCHMARK.train_stream[:2])
    resumed = strategy(name, encoding)
    resumed.model.load_state_dict(through_a_file(left.model.state_dict()))
    assert_same_answers(left, resumed)
    resumed.train(BENCHMARK.train_stream[2:])
    assert digest(resumed.model.state_dict()) == digest(straight.model.state_dict())
    assert_same_answers(straight, resumed)


def test_with_query_scope_stream_it_knows_which_experiences_it_learned() -> None:
    left = strategy("transductive", query_scope="stream")
    left.train(BENCHMARK.train_stream[:2])
    resumed = strategy("transductive", query_scope="stream")
    resumed.model.load_state_dict(through_a_file(left.model.state_dict()))
    assert_same_answers(left, resumed)


def test_loading_replaces_what_was_learned_before() -> None:
    """And the feature extractor that was adapted to it."""
    fresh, used = strategy("simple", "moving"), strategy("simple", "moving")
    fresh.train(BENCHMARK.train_stream[0])
    used.train(BENCHMARK.train_stream[2:])
    evaluated(used, BENCHMARK.test_stream)
    used.model.load_state_dict(fresh.model.state_dict())
    assert_same_answers(fresh, used)


@pytest.mark.parametrize("other", [{"encoding": "first"}, {"class_ids": "per-task"}])
def test_a_state_of_other_settings_is_refused(other: dict[str, Any]) -> None:
    saved = strategy("simple")
    saved.train(BENCHMARK.train_stream[0])
    with pytest.raises(
        ClCnapsError, match=r"the saved state is of the model simple \(.*\), encoding averaging, shared"
    ):
        strategy("simple", **other).model.load_state_dict(saved.model.state_dict())


def test_a_state_of_another_model_is_refused_even_where_the_weights_fit() -> None:
    saved = make("simple")
    saved.train(BENCHMARK.train_stream[0])
    with pytest.raises(ClCnapsError, match=r"of the model simple.*; this is the model transductive"):
        make("transductive").model.load_state_dict(saved.model.state_dict())


def test_avalanches_own_checkpoints_resume_exactly(tmp_path: Path) -> None:
    from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint

    file = tmp_path / "stream.pkl"
    straight, left = strategy("transductive"), strategy("transductive")
    straight.train(BENCHMARK.train_stream)
    for experience in BENCHMARK.train_stream[:2]:
        left.train(experience)
        save_checkpoint(left, file)
    resumed, start = maybe_load_checkpoint(strategy("transductive"), file)
    assert start == 2
    for experience in BENCHMARK.train_stream[start:]:
        resumed.train(experience)
    assert_same_answers(straight, resumed)
