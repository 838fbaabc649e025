"""Exact distances to the nearest of many classes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import Statistics, estimate, mahalanobis_logits, shortlist, support_statistics
from cl_cnaps.gaussian.shortlist import Shortlist

WIDTH, CLASSES = 24, 60


@pytest.fixture(params=["faiss", "cells", "torch"])
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which way of searching is used."""
    if request.param == "torch":
        monkeypatch.setattr(shortlist, "find_spec", lambda _name: None)
    else:
        pytest.importorskip("faiss")
    if request.param == "cells":
        monkeypatch.setattr(shortlist, "_CELLS_FROM", 10)
        monkeypatch.setattr(shortlist, "_CELLS_SEARCHED", 1.0)
    return str(request.param)


def problem(scale: float = 1.0, shots: tuple[int, ...] = (3, 8, 20)) -> tuple[Statistics, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.full((shots[k % len(shots)],), k) for k in range(CLASSES)])
    centres = 3 * torch.randn(CLASSES, WIDTH, generator=generator)
    mixing = torch.randn(WIDTH, WIDTH, generator=generator) / 4
    support = scale * (centres[labels] + torch.randn(len(labels), WIDTH, generator=generator) @ mixing)
    query = scale * (centres[::2] + torch.randn(CLASSES // 2, WIDTH, generator=generator) @ mixing)
    return support_statistics(support, labels, CLASSES), query


def halves(statistics: Statistics) -> list[Statistics]:
    return [statistics.select(numbers) for numbers in torch.arange(CLASSES).split(25)]


@pytest.mark.parametrize("rank", [None, 4])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_with_all_classes_as_candidates_logits_are_those_of_the_exact_classifier(
    search: str, rank: int | None, scale: float
) -> None:
    statistics, query = problem(scale)
    stored, scatter = statistics, statistics.scatter
    if rank is not None:
        stored, left = statistics.reduced(rank)
        assert stored.floor_K is not None
        scatter = replace(scatter, floor=stored.floor_K.sum(), left_RD=left)
    exact = mahalanobis_logits(estimate(stored, beta=2.0, scatter=scatter), query)
    made = Shortlist.build(halves(stored), scatter, candidates=10 * CLASSES, beta=2.0)
    torch.testing.assert_close(made.logits(query), exact, rtol=2e-4, atol=2e-4)


def test_few_candidates_are_exact_and_all_others_lie_below(search: str) -> None:
    statistics, query = problem()
    exact = mahalanobis_logits(estimate(statistics), query)
    made = Shortlist.build(halves(statistics), statistics.scatter, candidates=8)
    found = made.nearest(query)
    assert found.classes_QS.shape == found.logits_QS.shape == (len(query), 8)
    torch.testing.assert_close(found.logits_QS, exact.gather(1, found.classes_QS), rtol=1e-4, atol=1e-4)
    logits = made.logits(query)
    assert torch.equal(logits.argmax(dim=1), exact.argmax(dim=1))
    others = torch.ones_like(logits, dtype=torch.bool).scatter_(1, found.classes_QS, False)
    lowest = found.logits_QS.amin(dim=1, keepdim=True).expand_as(logits)
    assert bool((logits[others] < lowest[others]).all())


def test_wrong_arguments_are_refused() -> None:
    statistics, query = problem()
    with pytest.raises(BadInputError, match="at least one candidate"):
        Shortlist.build([statistics], statistics.scatter, candidates=0)
    with pytest.raises(BadInputError, match="sum of what was left out"):
        Shortlist.build([statistics], statistics.reduced(2)[0].scatter, candidates=5)
    with pytest.raises(BadInputError, match="width"):
        Shortlist.build([statistics], statistics.scatter, candidates=5).nearest(query[:, 1:])
