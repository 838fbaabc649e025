from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest

from cl_cnaps.episodes import EpisodeSampler, FixedSampler, MixtureSampler, VariableSampler
from cl_cnaps.errors import BadInputError

SAMPLERS: dict[str, EpisodeSampler] = {
    "birds": FixedSampler("cu_birds", {f"b{k}": 20 for k in range(9)}, seed=0),
    "signs": VariableSampler("traffic_sign", {f"s{k}": 30 for k in range(9)}, seed=1),
    "words": FixedSampler("omniglot", {f"w{k}": 15 for k in range(9)}, seed=2),
}


def test_an_episode_is_the_sources_own_under_the_mixtures_name():
    mixture = MixtureSampler(SAMPLERS, seed=5)
    for index in range(30):
        episode = mixture.episode(index)
        assert episode.source == mixture.source_of(index)
        assert episode == SAMPLERS[episode.source].episode(index)
        assert episode.index == index
        assert episode.class_names[0][0] == episode.source[0]


def test_sources_depend_on_seed_and_index_alone():
    mixture = MixtureSampler(SAMPLERS, seed=5)
    backwards = MixtureSampler(dict(reversed(SAMPLERS.items())), seed=5)
    expected = [mixture.source_of(index) for index in range(50)]
    assert [backwards.source_of(index) for index in reversed(range(50))] == expected[::-1]
    assert [MixtureSampler(SAMPLERS, seed=6).source_of(index) for index in range(50)] != expected


@pytest.mark.parametrize("weights", [None, {"birds": 6.0, "signs": 1.0, "words": 3.0}])
def test_sources_come_in_proportion_to_their_weights(weights):
    mixture = MixtureSampler(SAMPLERS, weights, seed=7)
    counts = Counter(mixture.source_of(index) for index in range(4_000))
    for name in SAMPLERS:
        p = 1 / 3 if weights is None else weights[name] / 10
        assert abs(counts[name] / 4_000 - p) < 4 * sqrt(p * (1 - p) / 4_000)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"birds": 1.0, "signs": 1.0}, "words"),
        ({"birds": 1.0, "signs": 1.0, "words": 1.0, "fungi": 1.0}, "fungi"),
        ({"birds": 1.0, "signs": 0.0, "words": 1.0}, "weight of 'signs' is 0.0"),
        ({"birds": 1.0, "signs": float("nan"), "words": 1.0}, "weight of 'signs' is nan"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(weights, message):
    with pytest.raises(BadInputError, match=message):
        MixtureSampler(SAMPLERS, weights, seed=0)


def test_an_empty_mixture_is_refused():
    with pytest.raises(BadInputError, match="at least one"):
        MixtureSampler({}, seed=0)
