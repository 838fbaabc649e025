"""The formulas against exact rational arithmetic, and the places where floating point could break them."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cl_cnaps.episodes import MetaDatasetConfig
from cl_cnaps.episodes.rules import draw_shots, queries_per_class, shots_per_class, support_size
from cl_cnaps.errors import BadInputError

CONFIG = MetaDatasetConfig()
LAST_BELOW_ONE = float(np.nextafter(1, 0))
# What Generator.random gives: whole multiples of 2^-53 below 1.
units = st.integers(0, 2**53 - 1).map(lambda k: k * 2.0**-53)
sizes = st.lists(st.integers(2, 3000), min_size=2, max_size=50)
factors = st.floats(0.5, 2.0)


def near_integer(x: Fraction) -> bool:
    return abs(x - round(x)) < Fraction(1, 10**9)


@pytest.mark.parametrize(("smallest", "expected"), [(2, 1), (3, 1), (19, 9), (20, 10), (21, 10), (5000, 10)])
def test_number_of_queries(smallest, expected):
    assert queries_per_class(np.array([400, smallest, 77 + smallest]), CONFIG) == expected


@given(sizes=sizes, u=units)
@example(sizes=[20] * 5, u=0.0)
@example(sizes=[20] * 5, u=LAST_BELOW_ONE)
def test_support_size_exactly(sizes, u):
    array = np.array(sizes)
    queries = queries_per_class(array, CONFIG)
    products = [Fraction(u) * min(100, size - queries) for size in sizes]
    exact = min(500, sum(floor(p + 1) for p in products))
    got = support_size(array, queries, u, CONFIG)
    assert got == exact or any(near_integer(p) for p in products)
    assert len(sizes) <= got <= min(500, sum(min(100, size - queries) for size in sizes))


@pytest.mark.parametrize("available", range(1, 101))
def test_a_class_never_contributes_more_than_it_has(available):
    # floor(u * c + 1) does: 1 - 2^-53 times 64, plus 1, rounds to 65.
    assert floor(LAST_BELOW_ONE * 64 + 1) == 65
    queries = min(10, available)  # sizes of which `available` remain after the queries
    array = np.array([available + queries] * 2)
    assert support_size(array, queries, LAST_BELOW_ONE, CONFIG) == 2 * available


@given(
    table=st.lists(st.tuples(st.integers(2, 3000), factors), min_size=2, max_size=50),
    extra=st.integers(0, 450),
)
def test_shots_exactly(table, extra):
    array = np.array([size for size, _ in table])
    queries = queries_per_class(array, CONFIG)
    support = len(table) + extra
    got = shots_per_class(array, queries, support, np.array([factor for _, factor in table]))
    weights = [size * Fraction(factor) for size, factor in table]
    for shots, weight, size in zip(got.tolist(), weights, array.tolist(), strict=True):
        desired = weight / sum(weights) * extra
        assert shots == min(floor(desired) + 1, size - queries) or near_integer(desired)
        assert 1 <= shots <= size - queries
    assert got.sum() <= support


@pytest.mark.parametrize("ways", range(2, 51))
def test_equal_classes_get_equal_shares(ways):
    # Normalising the weights first would lose an image of each class: floor(49 * (1 / 49)) = 0.
    assert floor(49 * (1 / 49)) == 0
    for shots in range(1, 500 // ways + 1):
        got = shots_per_class(np.full(ways, 1000), 10, ways * shots, np.ones(ways))
        assert got.tolist() == [shots] * ways


def test_shots_are_cut_to_what_the_queries_leave():
    got = shots_per_class(np.array([1000, 12]), 6, 500, np.array([0.5, 2.0]))
    # Weights 500 and 24: floor(498 * 24 / 524) + 1 = 23 of a class that has 12 - 6.
    assert got.tolist() == [floor(498 * 500 / 524) + 1, 6]


def test_a_class_may_have_more_shots_than_it_contributes():
    # Ten classes contribute at most 100 each; one ten times as large takes most of the 500.
    got = shots_per_class(np.array([10_000] + [100] * 4), 10, 500, np.ones(5))
    assert got.tolist() == [floor(495 * 10_000 / 10_400) + 1, *[floor(495 * 100 / 10_400) + 1] * 4]


def test_one_draw_of_u_is_shared_by_the_classes():
    rng = np.random.default_rng(0)
    config = MetaDatasetConfig(min_weight=1, max_weight=1)
    for _ in range(200):
        shots, queries = draw_shots(np.full(5, 200), config, rng)
        assert queries == 10
        assert len(set(shots.tolist())) == 1  # five different u would give different shots


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_ways": 1}, "min_ways"),
        ({"min_ways": 9, "max_ways": 8}, "9..8"),
        ({"max_queries": 0}, "max_queries is 0"),
        ({"max_contribution": 0}, "max_contribution is 0"),
        ({"max_support": 49}, "max_support is 49"),
        ({"min_weight": 0.0}, "weights"),
        ({"min_weight": 3.0}, "weights"),
        ({"max_weight": float("inf")}, "weights"),
        ({"max_leaves": 4}, "max_leaves is 4"),
    ],
)
def test_bounds_that_allow_no_episode_are_refused(change, message):
    with pytest.raises(BadInputError, match=message):
        MetaDatasetConfig(**change)
