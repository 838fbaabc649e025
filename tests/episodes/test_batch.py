from __future__ import annotations

import pytest
import torch

from cl_cnaps.episodes import FixedConfig, FixedSampler
from cl_cnaps.episodes.batch import EpisodeBatch
from cl_cnaps.errors import BadInputError


def test_labels_are_way_positions_in_the_order_of_the_rows():
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
