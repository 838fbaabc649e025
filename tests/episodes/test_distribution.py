"""Ways, shots and support sizes of many episodes against probabilities worked out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from math import ceil, sqrt

import pytest

from cl_cnaps.episodes import (
    ClassGraph,
    ClassTable,
    FixedConfig,
    FixedSampler,
    MetaDatasetConfig,
    MetaDatasetSampler,
    SplitSpec,
)

EQUAL_WEIGHTS = MetaDatasetConfig(min_weight=1, max_weight=1)


def variable(sizes: dict[str, int], **settings) -> MetaDatasetSampler:
    """A sampler of variable way and shot over classes that are not related."""
    return MetaDatasetSampler("t", SplitSpec(ClassTable.of(sizes)), **settings)


def assert_distributed(observed: Iterable[Hashable], expected: Mapping[Hashable, float]) -> None:
    """Pearson's chi-square: mean k, the degrees of freedom, and variance 2 k; five deviations are allowed."""
    counts = Counter(observed)
    assert set(counts) <= set(expected)
    assert abs(sum(expected.values()) - 1) < 1e-12
    total = counts.total()
    chi2 = sum((counts[key] - total * p) ** 2 / (total * p) for key, p in expected.items())
    freedom = len(expected) - 1
    assert chi2 < freedom + 5 * sqrt(2 * freedom), f"chi-square {chi2:.1f} with {freedom} degrees of freedom"


def assert_probability(hits: int, total: int, p: float) -> None:
    assert abs(hits / total - p) < 4 * sqrt(p * (1 - p) / total)


def test_ways_and_shots_of_equal_classes():
    # Eight classes of 20: ways are uniform on {5, 6, 7, 8}; queries are min(10, 20 // 2) = 10, so 10 images
    # remain. floor(10 u + 1) =: b is uniform on {1..10}, the support size is ways * b (at most 80). With
    # equal weights each class gets floor((ways * b - ways) / ways) + 1 = b shots. So (ways, shots) is uniform
    # on the 40 pairs, and the support size has mean 6.5 * 5.5 = 35.75.
    sampler = variable({f"c{k}": 20 for k in range(8)}, seed=1, config=EQUAL_WEIGHTS)
    episodes = [sampler.episode(index) for index in range(10_000)]
    assert all(set(e.queries.tolist()) == {10} and len(set(e.shots.tolist())) == 1 for e in episodes)
    pairs = {(ways, b): 1 / 40 for ways in range(5, 9) for b in range(1, 11)}
    assert_distributed(((e.way, int(e.shots[0])) for e in episodes), pairs)
    sizes = [len(e.support) for e in episodes]
    # Var = E[w^2] E[b^2] - mean^2 = 43.5 * 38.5 - 35.75^2 = 396.7: a standard error of 0.2.
    assert abs(sum(sizes) / len(sizes) - 35.75) < 0.8
    # Every class is as likely as any other: 6.5 of 8 classes an episode, 0.8125 each.
    appearances = Counter(name for e in episodes for name in e.class_names)
    for k in range(8):
        assert_probability(appearances[f"c{k}"], 10_000, 0.8125)


def test_support_sizes_with_the_official_weights():
    # Five classes of 1,000: five ways always, floor(100 u + 1) =: b uniform on {1..100}, support size S = 5 b
    # (500 at most). The shots are floor(p_k (S - 5)) + 1 with sum p_k = 1, so they lose less than one image a
    # class: their sum lies in [5 b - 4, 5 b], and b = ceil(sum / 5) can be read back.
    sampler = variable({f"c{k}": 1000 for k in range(5)}, seed=2)
    episodes = [sampler.episode(index) for index in range(10_000)]
    assert all(e.way == 5 for e in episodes)
    assert_distributed((ceil(len(e.support) / 5) for e in episodes), dict.fromkeys(range(1, 101), 0.01))


def test_support_size_is_capped_at_500():
    # Ten classes of 1,000, equal weights: S = min(500, ways * b), b uniform on {1..100}, and each class gets
    # floor(S / ways) shots, which is b but at most t = floor(500 / ways). So P(t shots) = P(b >= t) =
    # (101 - t) / 100: t = 100, 83, 71, 62, 55, 50 for 5..10 ways.
    sampler = variable({f"c{k}": 1000 for k in range(10)}, seed=3, config=EQUAL_WEIGHTS)
    episodes = [sampler.episode(index) for index in range(2_000)]
    expected: dict[Hashable, float] = {}
    for ways, most in zip(range(5, 11), (100, 83, 71, 62, 55, 50), strict=True):
        expected[ways, "fewer"] = (most - 1) / 600
        expected[ways, "most"] = (101 - most) / 600
        assert max(int(e.shots[0]) for e in episodes if e.way == ways) <= most
    tops = {ways: 500 // ways for ways in range(5, 11)}
    observed = [(e.way, "most" if e.shots[0] == tops[e.way] else "fewer") for e in episodes]
    assert_distributed(observed, expected)


def test_shots_follow_class_sizes():
    # Classes of 1,000 and 3,000, equal factors: S = 2 b, so floor((2 b - 2) / 4) + 1 and
    # floor(3 (2 b - 2) / 4) + 1 shots, b uniform on {1..100}; two values of b never give the same pair, as
    # one of the two numbers grows at every step.
    config = MetaDatasetConfig(min_ways=2, min_weight=1, max_weight=1)
    sampler = variable({"small": 1000, "large": 3000}, seed=4, config=config)
    expected = {((2 * b - 2) // 4 + 1, 3 * (2 * b - 2) // 4 + 1): 0.01 for b in range(1, 101)}
    assert len(expected) == 100
    shots = [
        dict(zip(e.class_names, e.shots.tolist(), strict=True)) for e in map(sampler.episode, range(2_000))
    ]
    assert_distributed(((s["small"], s["large"]) for s in shots), expected)


@pytest.mark.parametrize("widest", [2, 7])
def test_weights_are_log_uniform_about_one(widest):
    # Two classes of 1,000: the first gets p = f1 / (f1 + f2), log f uniform on (-log w, log w), w = 2
    # in Meta-Dataset. The difference of the two logs is triangular on (-2 log w, 2 log w), and p > w/(w + 1)
    # means that it exceeds log w, half of the way to the end: probability (1/2) (1/2)^2 = 1/8. Read off
    # floor(p r) >= r w / (w + 1) where w + 1 divides r = 2 b - 2, b as above. (Factors uniform on (1/w, w)
    # would give 0.111 for w = 2 and 0.055 for w = 7.)
    config = MetaDatasetConfig(min_ways=2)
    if widest != config.max_weight:
        config = replace(config, min_weight=1 / widest, max_weight=widest)
    sampler = variable({"a": 1000, "b": 1000}, seed=5, config=config)
    total = hits = 0
    for episode in map(sampler.episode, range(2_400)):
        rest = 2 * ceil(len(episode.support) / 2) - 2
        if rest and rest % (widest + 1) == 0:
            part = int(episode.shots[0]) - 1
            # p lies between 1 / (1 + w^2) and w^2 / (1 + w^2).
            assert rest / (1 + widest**2) - 1 < part <= rest * widest**2 / (1 + widest**2)
            total += 1
            hits += part >= rest * widest // (widest + 1)
    assert total > 500
    assert_probability(hits, total, 1 / 8)


def test_queries_of_the_smallest_class():
    # Five classes of 100 and one of 7: ways 5 or 6. The small one is in all 6-way and 5/6 of 5-way episodes
    # (11/12 of all), and then there are 7 // 2 = 3 queries a class, else 10.
    sampler = variable({**{f"c{k}": 100 for k in range(5)}, "small": 7}, seed=6)
    episodes = [sampler.episode(index) for index in range(1_500)]
    assert_distributed((int(e.queries[0]) for e in episodes), {3: 11 / 12, 10: 1 / 12})


def test_alphabets_are_picked_uniformly():
    # Alphabets of 5 and 8 characters: half of the episodes have the first (5 ways), half the second, with
    # ways uniform on {5, 6, 7, 8}.
    groups = {"first": tuple(f"f{k}" for k in range(5)), "second": tuple(f"s{k}" for k in range(8))}
    table = ClassTable.of({name: 20 for names in groups.values() for name in names})
    sampler = MetaDatasetSampler("o", SplitSpec(table, groups=groups), seed=7)
    observed = []
    for episode in map(sampler.episode, range(2_000)):
        alphabet = {name[0] for name in episode.class_names}
        assert len(alphabet) == 1
        observed.append((alphabet.pop(), episode.way))
    assert_distributed(observed, {("f", 5): 1 / 2, **{("s", ways): 1 / 8 for ways in range(5, 9)}})


def test_concepts_are_picked_uniformly():
    # Concepts of 4, 5, 6, 60, 392 and 393 leaves under one root. Eligible: 5, 6, 60 and 392, a quarter each;
    # the last two are cut to 50 ways. The root and the concepts of 4 and 393 are never picked.
    spans = {f"n{size}": tuple(f"{size}.{k}" for k in range(size)) for size in (4, 5, 6, 60, 392, 393)}
    leaves = [leaf for span in spans.values() for leaf in span]
    graph = ClassGraph({"root": tuple(spans), **spans, **dict.fromkeys(leaves, ())})
    split = SplitSpec(ClassTable.of(dict.fromkeys(leaves, 30)), graph=graph)
    sampler = MetaDatasetSampler("i", split, seed=8)
    observed = []
    for episode in map(sampler.episode, range(1_000)):
        concept = {name.split(".")[0] for name in episode.class_names}
        assert len(concept) == 1
        observed.append((concept.pop(), episode.way))
    assert_distributed(observed, {("5", 5): 1 / 4, ("6", 6): 1 / 4, ("60", 50): 1 / 4, ("392", 50): 1 / 4})


def test_fixed_episodes_use_all_classes_and_images_alike():
    # 5 of 10 classes and 2 + 3 of 10 images: a class is in half of the episodes, an image of it in 1/5 of its
    # supports and 3/10 of its queries.
    config = FixedConfig(5, 2, 3)
    sampler = FixedSampler("t", {f"c{k}": 10 for k in range(10)}, seed=9, config=config)
    supports: Counter[tuple[str, int]] = Counter()
    queries: Counter[tuple[str, int]] = Counter()
    for episode in map(sampler.episode, range(2_000)):
        supports.update((episode.class_names[c], i) for c, i in episode.support.tolist())
        queries.update((episode.class_names[c], i) for c, i in episode.query.tolist())
    assert len(supports) == len(queries) == 100
    for counts, p in ((supports, 1 / 10), (queries, 3 / 20)):
        assert all(abs(n / 2_000 - p) < 5 * sqrt(p * (1 - p) / 2_000) for n in counts.values())
