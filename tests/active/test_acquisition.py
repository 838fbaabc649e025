"""Strategies: what they score, how ties are decided, how a person adds one."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cl_cnaps.active import acquisition
from cl_cnaps.active.acquisition import (
    STRATEGIES,
    Candidates,
    best,
    chosen_strategies,
    entropy,
    random,
    strategy,
    variation_ratio,
)
from cl_cnaps.errors import BadInputError


@dataclass
class Given:
    """Candidates of known probabilities; features are not to be had."""

    probabilities_PK: Tensor
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def count(self) -> int:
        return len(self.probabilities_PK)

    @property
    def features_PD(self) -> Tensor:
        raise AssertionError("features were asked for")

    labelled_features_ND = labels_N = features_PD


class Unseen(Given):
    """Candidates that nobody may look at."""

    def __init__(self, count: int, seed: int) -> None:
        self.size, self.generator = count, np.random.default_rng(seed)

    @property
    def count(self) -> int:
        return self.size

    @property
    def probabilities_PK(self) -> Tensor:  # type: ignore[override]
        raise AssertionError("probabilities were asked for")


@st.composite
def probabilities(draw: st.DrawFn) -> Tensor:
    shape = (draw(st.integers(1, 12)), draw(st.integers(2, 6)))
    logits = draw(
        st.lists(
            st.lists(st.floats(-300, 300), min_size=shape[1], max_size=shape[1]),
            min_size=shape[0],
            max_size=shape[0],
        )
    )
    return torch.softmax(torch.tensor(logits, dtype=torch.float64), dim=1)


@given(probabilities())
def test_entropy_and_variation_ratio_are_their_formulas(p: Tensor) -> None:
    found, ratio = entropy(Given(p)), variation_ratio(Given(p))
    for row, one, other in zip(p.tolist(), found.tolist(), ratio.tolist(), strict=True):
        assert one == pytest.approx(-sum(x * math.log(x) for x in row if x > 0), abs=1e-12)
        assert other == pytest.approx(1 - max(row), abs=1e-15)


@given(probabilities(), st.integers(1, 12))
def test_the_least_certain_images_are_chosen(p: Tensor, wanted: int) -> None:
    wanted = min(wanted, len(p))
    chosen = best(variation_ratio(Given(p)), len(p), wanted)
    assert len(set(chosen.tolist())) == wanted
    others = sorted(set(range(len(p))) - set(chosen.tolist()))
    top = p.max(dim=1).values
    assert not others or top[chosen].max() <= top[others].min() + 1e-15


@given(st.lists(st.floats(0.5, 1), min_size=1, max_size=20, unique=True))
def test_two_classes_make_uncertainties_alike(top: list[float]) -> None:
    top = [round(value, 3) for value in top]
    p = torch.tensor([[value, 1 - value] for value in dict.fromkeys(top)], dtype=torch.float64)
    orders = [best(score(Given(p)), len(p), len(p)).tolist() for score in (entropy, variation_ratio)]
    assert orders[0] == orders[1]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 30))
def test_ties_go_by_position(scores: list[int], wanted: int) -> None:
    tensor = torch.tensor(scores, dtype=torch.float64)
    order = best(tensor, len(scores), len(scores)).tolist()
    assert order == sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    assert best(tensor, len(scores), wanted).tolist() == order[:wanted]


def test_random_looks_at_nothing_and_goes_by_the_seed() -> None:
    one, same, other = (best(random(Unseen(50, seed)), 50, 9).tolist() for seed in (0, 0, 1))
    assert one == same
    assert one != other
    counts = np.zeros(10)
    for seed in range(2000):
        counts[best(random(Unseen(10, seed)), 10, 3)] += 1
    assert counts.min() > 0.8 * 600  # 600 expected of each, 20 standard error
    assert counts.max() < 1.2 * 600


def test_bad_scores_are_refused() -> None:
    with pytest.raises(BadInputError, match="one score to each of 3 images"):
        best(torch.zeros(2), 3, 1)
    with pytest.raises(BadInputError, match="as a tensor, not as list"):
        best([0.0, 1.0, 2.0], 3, 1)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="not numbers"):
        best(torch.tensor([0.0, torch.nan]), 2, 1)


def margin(candidates: Candidates) -> Tensor:
    top_P2 = candidates.probabilities_PK.topk(2, dim=1).values
    return top_P2[:, 1] - top_P2[:, 0]


def test_a_person_adds_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquisition, "STRATEGIES", dict(STRATEGIES))
    strategy("margin")(margin)
    chosen = chosen_strategies(["margin", "random"])
    assert list(chosen) == ["margin", "random"]
    p = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.35, 0.25], [0.5, 0.1, 0.4]], dtype=torch.float64)
    assert best(chosen["margin"](Given(p)), 3, 3).tolist() == [1, 2, 0]
    assert pickle.loads(pickle.dumps(chosen)) == chosen  # so that workers can have it
    with pytest.raises(BadInputError, match="already"):
        strategy("margin")(margin)


def test_names_that_are_not_there_are_named() -> None:
    with pytest.raises(
        BadInputError, match="unknown strategy 'bald'; there are random, entropy, variation-ratio"
    ):
        chosen_strategies(["bald"])
    with pytest.raises(BadInputError, match="twice"):
        chosen_strategies(["random", "random"])
    with pytest.raises(BadInputError, match="no strategy"):
        chosen_strategies([])
