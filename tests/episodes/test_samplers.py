from __future__ import annotations

import pickle
from collections import Counter
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_cnaps.episodes import (
    ClassGraph,
    ClassTable,
    Episode,
    EpisodeSampler,
    FixedConfig,
    FixedSampler,
    MetaDatasetConfig,
    MetaDatasetSampler,
    MixtureSampler,
    SplitSpec,
    episodes_digest,
)
from cl_cnaps.errors import BadInputError

seeds = st.integers(0, 2**32 - 1)
indices = st.integers(0, 2**32 - 1)
tables = st.lists(st.integers(2, 300), min_size=5, max_size=70).map(
    lambda s: {f"c{k}": n for k, n in enumerate(s)}
)


def variable(source: str, sizes: dict[str, int], **settings) -> MetaDatasetSampler:
    """A sampler of variable way and shot over classes that are not related."""
    return MetaDatasetSampler(source, SplitSpec(ClassTable.of(sizes)), **settings)


def check_images(episode: Episode, sizes: dict[str, int]) -> None:
    """Support and query are disjoint, without repeats, and of images that the classes have."""
    support, query = (set(map(tuple, rows.tolist())) for rows in (episode.support, episode.query))
    assert len(support) == len(episode.support)
    assert len(query) == len(episode.query)
    assert not support & query
    assert len(set(episode.class_names)) == episode.way
    for position, image in support | query:
        assert 0 <= image < sizes[episode.class_names[position]]


@given(sizes=tables, seed=seeds, index=indices)
def test_variable_episodes_keep_every_bound(sizes, seed, index):
    episode = variable("t", sizes, seed=seed).episode(index)
    check_images(episode, sizes)
    of_classes = [sizes[name] for name in episode.class_names]
    assert 5 <= episode.way <= min(50, len(sizes))
    assert set(episode.queries.tolist()) == {min(10, min(of_classes) // 2)}
    assert len(episode.support) <= 500
    for shots, queries, size in zip(episode.shots, episode.queries, of_classes, strict=True):
        assert 1 <= shots <= size - queries


@given(sizes=tables, seed=seeds, data=st.data())
def test_settable_bounds_are_kept(sizes, seed, data):
    min_ways = data.draw(st.integers(2, len(sizes)))
    max_ways = data.draw(st.integers(min_ways, 80))
    config = MetaDatasetConfig(
        min_ways=min_ways,
        max_ways=max_ways,
        max_queries=data.draw(st.integers(1, 50)),
        max_support=data.draw(st.integers(max_ways, 600)),
        max_contribution=data.draw(st.integers(1, 200)),
    )
    episode = variable("t", sizes, seed=seed, config=config).episode(0)
    check_images(episode, sizes)
    assert min_ways <= episode.way <= min(max_ways, len(sizes))
    assert set(episode.queries.tolist()) == {
        min(config.max_queries, min(sizes[name] for name in episode.class_names) // 2)
    }
    assert (
        episode.way <= len(episode.support) <= min(config.max_support, config.max_contribution * episode.way)
    )


@given(sizes=tables, seed=seeds, data=st.data())
def test_fixed_episodes_are_exactly_as_asked(sizes, seed, data):
    smallest = min(sizes.values())
    shots = data.draw(st.integers(1, smallest - 1))
    config = FixedConfig(
        data.draw(st.integers(2, len(sizes))), shots, data.draw(st.integers(1, smallest - shots))
    )
    episode = FixedSampler("t", sizes, seed=seed, config=config).episode(7)
    check_images(episode, sizes)
    assert episode.shots.tolist() == [config.shots] * config.ways
    assert episode.queries.tolist() == [config.queries] * config.ways


@settings(max_examples=25)
@given(sizes=tables, seed=seeds, order=st.permutations(range(6)))
def test_episode_depends_on_its_index_alone(sizes, seed, order):
    sampler = variable("t", sizes, seed=seed)
    expected = [variable("t", sizes, seed=seed).episode(index) for index in range(6)]
    asked = {index: sampler.episode(index) for index in order}
    assert [asked[index] for index in range(6)] == expected
    # What a worker process gets is a pickled copy of the sampler.
    worker = pickle.loads(pickle.dumps(sampler))
    assert [worker.episode(index) for index in range(6)] == expected


def test_what_decides_an_episode():
    def first(source="t", sizes=40, seed=3, index=0):
        return FixedSampler(source, {f"c{k}": sizes for k in range(30)}, seed=seed).episode(index)

    assert first(source="other") == first()
    assert len({first(), first(seed=4), first(index=1), first(sizes=41)}) == 4
    # A data set of the same shape gets draws of its own, not the same positions with other names.
    other = FixedSampler("t", {f"d{k}": 40 for k in range(30)}, seed=3).episode(0)
    assert [name[1:] for name in other.class_names] != [name[1:] for name in first().class_names]
    # (seed, index) = (3, 0) and (0, 3) are different sequences, not one sum.
    assert first(seed=0, index=3) != first(seed=3, index=0)


def test_sizes_counted_by_numpy_give_the_same_episodes():
    plain = FixedSampler("t", {f"c{k}": 40 for k in range(30)}, seed=3).episode(0)
    assert FixedSampler("t", {f"c{k}": np.int32(40) for k in range(30)}, seed=3).episode(0) == plain


def test_an_episode_names_where_it_comes_from():
    episode = variable("letters", dict.fromkeys("abcdef", 20), seed=8).episode(5)
    assert (episode.source, episode.seed, episode.index) == ("letters", 8, 5)


def test_episodes_stay_what_they_are():
    # Recorded results name these digests. If this fails, episodes of the same seed have changed: with numpy's
    # generators (then say so in the results), or with the sampler (then it is a mistake).
    sizes = {f"c{k}": 15 + 3 * k for k in range(20)}
    varied = variable("t", sizes, seed=0)
    fixed = FixedSampler("t", sizes, seed=0, config=FixedConfig(5, 5, 10))
    assert (
        episodes_digest(varied.episode(i) for i in range(20))
        == "07166976eda9b4898eeb2901423ea229e2267d1616155775ef09748c1fc10f01"
    )
    assert (
        episodes_digest(fixed.episode(i) for i in range(20))
        == "34cdedcaf12cc866040a28c09b4aacc1b20d578f8342951fd224bee3dafcd50b"
    )


def test_every_image_of_a_class_can_be_support_and_query():
    sampler = FixedSampler("t", {"a": 30, "b": 30}, seed=0, config=FixedConfig(2, 2, 2))
    episodes = [sampler.episode(index) for index in range(200)]
    for rows in (lambda e: e.support, lambda e: e.query):
        assert {int(image) for e in episodes for image in rows(e)[:, 1]} == set(range(30))


@pytest.mark.parametrize(
    ("sizes", "config", "message"),
    [
        (
            {"a": 20, "b": 14},
            FixedConfig(2, 5, 10),
            "t: class 'b' has 14 images; 15 are needed .5 shots and 10 queries",
        ),
        ({"a": 20, "b": 14}, FixedConfig(3, 1, 1), "t: has 2 classes; tasks have 3 ways"),
        ({"a": 20, "b": 1, "c": 5}, MetaDatasetConfig(min_ways=2), "t: class 'b' has 1 images; 2 are needed"),
        ({"a": 20, "b": 20}, MetaDatasetConfig(), "t: 2 classes are too few for episodes of at least 5 ways"),
    ],
)
def test_too_little_is_an_error_that_names_it(sizes, config, message):
    sampler = FixedSampler if isinstance(config, FixedConfig) else variable
    with pytest.raises(BadInputError, match=message):
        sampler("t", sizes, seed=0, config=config)


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (2**32, 0), (0, -1), (0, 2**32)])
def test_numbers_that_would_share_a_sequence_are_refused(seed, index):
    with pytest.raises(BadInputError, match=r"must be in 0\.\."):
        FixedSampler("t", {f"c{k}": 20 for k in range(5)}, seed=seed).episode(index)


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 0, 1), (2, 1, 0)])
def test_fixed_shapes_that_are_no_task_are_refused(shape):
    with pytest.raises(BadInputError, match="needed"):
        FixedConfig(*shape)


def test_splits_that_give_no_episode_are_refused_by_name():
    names = tuple("abcdef")
    table = ClassTable.of(dict.fromkeys(names, 20))
    with pytest.raises(BadInputError, match="s: has no classes"):
        MetaDatasetSampler("s", SplitSpec(ClassTable.of({})), seed=0)
    grouped = SplitSpec(table, groups={"long": names[:5], "short": names[5:]})
    with pytest.raises(BadInputError, match="s: group 'short' has 1 classes"):
        MetaDatasetSampler("s", grouped, seed=0)
    flat = SplitSpec(table, graph=ClassGraph({"top": names, **dict.fromkeys(names, ())}))
    with pytest.raises(BadInputError, match="s: no concept of the graph spans 5 to 5 of the 6"):
        MetaDatasetSampler("s", flat, seed=0, config=MetaDatasetConfig(max_leaves=5))


SAMPLERS: dict[str, EpisodeSampler] = {
    "birds": FixedSampler("cu_birds", {f"b{k}": 20 for k in range(9)}, seed=0),
    "signs": variable("traffic_sign", {f"s{k}": 30 for k in range(9)}, seed=1),
    "words": FixedSampler("omniglot", {f"w{k}": 15 for k in range(9)}, seed=2),
}


def test_episode_of_a_mixture():
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
