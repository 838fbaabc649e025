"""How d^t moves along a stream."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from cl_cnaps.continual import encodings
from cl_cnaps.continual.encodings import ENCODINGS, EncodingName, StreamEncoding, encoding
from cl_cnaps.errors import BadInputError

OWN = torch.randn(5, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def after_each(kind: EncodingName) -> list[torch.Tensor]:
    encoding, values = StreamEncoding(kind), []
    for own in OWN:
        encoding = encoding.observe(own)
        assert encoding.value is not None
        values.append(encoding.value)
    assert encoding.tasks == len(OWN)
    return values


def test_moving_is_the_encoding_of_the_latest_task() -> None:
    assert all(torch.equal(value, own) for value, own in zip(after_each("moving"), OWN, strict=True))


def test_first_is_the_encoding_of_the_first_task_for_ever() -> None:
    assert all(torch.equal(value, OWN[0]) for value in after_each("first"))


def test_averaging_is_the_mean_of_the_encodings_so_far() -> None:
    for t, value in enumerate(after_each("averaging"), start=1):
        torch.testing.assert_close(value, OWN[:t].mean(dim=0), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("kind", list(ENCODINGS))
def test_observing_leaves_the_former_encoding_and_the_given_tensor_alone(kind: EncodingName) -> None:
    before = StreamEncoding(kind).observe(OWN[0])
    kept, given = before.value.clone(), OWN[1].clone()  # type: ignore[union-attr]
    before.observe(OWN[1])
    assert before.tasks == 1
    assert torch.equal(before.value, kept)  # type: ignore[arg-type]
    assert torch.equal(OWN[1], given)
    with pytest.raises(dataclasses.FrozenInstanceError):
        before.tasks = 3  # type: ignore[misc]


@pytest.mark.parametrize("kind", list(ENCODINGS))
def test_frozen_features_have_no_encoding_but_tasks_are_counted(kind: EncodingName) -> None:
    encoding = StreamEncoding(kind).observe(None).observe(None)
    assert (encoding.tasks, encoding.value) == (2, None)


def test_only_first_settles_and_only_after_a_task() -> None:
    assert not StreamEncoding("first").settled
    assert {kind: StreamEncoding(kind).observe(OWN[0]).settled for kind in ENCODINGS} == {
        "moving": False,
        "first": True,
        "averaging": False,
    }


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(BadInputError, match="'latest'; there are moving, first, averaging"):
        StreamEncoding("latest")


def test_a_person_adds_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "ENCODINGS", dict(ENCODINGS))
    told = []

    @encoding("largest")
    def largest(before: torch.Tensor, own: torch.Tensor, t: int) -> torch.Tensor:
        told.append(t)
        return torch.maximum(before, own)

    for n, value in enumerate(after_each("largest"), start=1):
        assert torch.equal(value, OWN[:n].max(dim=0).values)
    assert told == [2, 3, 4, 5]
    assert not StreamEncoding("largest").observe(OWN[0]).settled
    with pytest.raises(BadInputError, match="an encoding called 'largest' already"):
        encoding("largest")(largest)
    encoding("longer")(lambda before, own, t: torch.cat([before, own]))
    with pytest.raises(BadInputError, match=r"'longer' must give a vector of 64 numbers, not \(128,\)"):
        after_each("longer")
