from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cl_cnaps.episodes import Episode, FixedConfig, FixedSampler, episodes_digest
from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.errors import BadInputError

EPISODE = Episode(
    source="letters",
    class_names=("a", "b"),
    support=np.array([[0, 3], [0, 1], [1, 3]]),
    query=np.array([[0, 0], [1, 0]]),
    seed=1,
    index=2,
)


def test_way_shots_and_queries_are_counted_in_way_order():
    assert EPISODE.way == 2
    assert EPISODE.shots.tolist() == [2, 1]
    assert EPISODE.queries.tolist() == [1, 1]


def test_arrays_are_read_only():
    rows = np.array([[0, 3], [1, 3]])
    episode = replace(EPISODE, support=rows)
    rows[0, 1] = 7
    assert episode.support[0, 1] == 3
    with pytest.raises(ValueError, match="read-only"):
        episode.support[0, 1] = 7


def test_digest_is_of_the_content_alone():
    elsewhere = replace(EPISODE, source="other", seed=5, index=6, support=EPISODE.support.astype(np.int32))
    assert elsewhere.digest() == EPISODE.digest()
    assert elsewhere == EPISODE
    assert len({elsewhere, EPISODE}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"class_names": ("a", "c")},
        {"class_names": ("b", "a")},
        {"support": np.array([[0, 3], [0, 2], [1, 3]])},
        {"support": EPISODE.support[:2], "query": np.array([[1, 3], [0, 0], [1, 0]])},
        {"query": np.array([[0, 0], [1, 1]])},
    ],
)
def test_digest_changes_with_the_content(change):
    assert replace(EPISODE, **change).digest() != EPISODE.digest()
    assert replace(EPISODE, **change) != EPISODE


def test_digest_never_changes():
    assert EPISODE.digest() == "e355b2ecf9c10a8531be1cbe29a626c04e73cd4f0e8b143c20816bd818cebb5e"


def test_digest_of_many_depends_on_order_and_number():
    other = replace(EPISODE, class_names=("x", "y"))
    digests = {episodes_digest(e) for e in ([], [EPISODE], [EPISODE, other], [other, EPISODE], [EPISODE] * 2)}
    assert len(digests) == 5
    assert episodes_digest(iter([EPISODE, other])) == episodes_digest([EPISODE, other])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": np.array([[0, 3], [1, 0]])}, "used twice"),
        ({"support": np.array([[0, 3], [0, 3], [1, 3]])}, "used twice"),
        ({"support": np.array([[2, 3]])}, "outside 0..1"),
        ({"support": np.array([[0, -1]])}, "negative"),
        ({"support": np.array([0, 1])}, "shape"),
        ({"query": np.empty((0, 2), dtype=int)}, "shape"),
        ({"class_names": ("a", "a")}, "distinct"),
    ],
)
def test_what_is_no_episode_is_refused_by_name(change, message):
    with pytest.raises(BadInputError, match=message) as raised:
        replace(EPISODE, **change)
    assert "episode 2 of 'letters'" in str(raised.value)


def test_labels_of_a_batch():
    config = FixedConfig(ways=2, shots=3, queries=1)
    episode = FixedSampler("s", dict.fromkeys("abc", 9), seed=0, config=config).episode(0)
    batch = EpisodeBatch.of(episode, torch.zeros(6, 3, 4, 4), torch.zeros(2, 3, 4, 4))
    assert batch.way == 2
    assert batch.support_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.query_labels.tolist() == [0, 1]
    assert batch.support_labels.dtype == torch.int64
    moved = batch.to("meta")
    assert all(t.device.type == "meta" for t in vars(moved).values() if isinstance(t, torch.Tensor))


def test_images_and_labels_must_match():
    episode = FixedSampler("s", dict.fromkeys("abcde", 11), seed=0).episode(0)
    with pytest.raises(BadInputError, match="query images"):
        EpisodeBatch.of(episode, torch.zeros(5, 3, 4, 4), torch.zeros(7, 3, 4, 4))
