from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cl_cnaps.continual.baselines.tuning import held_out_stream, tune
from cl_cnaps.errors import BadInputError

CPU = torch.device("cpu")


def without_tests(stream):
    """The same stream with nothing to peek at: noise for queries, and wrong labels."""
    return replace(
        stream,
        tasks=tuple(
            replace(t, query_images=torch.randint_like(t.query_images, 255), query_labels=t.query_labels + 50)
            for t in stream.tasks
        ),
    )


def test_held_out_images_are_support_images_that_are_not_learned_from(make_stream):
    stream = make_stream()
    small = held_out_stream(stream, tasks=2, fraction=0.25, seed=0)
    assert len(small.tasks) == 2
    for before, after in zip(stream.tasks, small.tasks, strict=False):
        assert torch.bincount(after.query_labels, minlength=6)[list(before.classes)].tolist() == [3, 3]
        images = torch.cat([after.support_images, after.query_images]).flatten(1)
        assert sorted(map(hash, map(tuple, images.tolist()))) == sorted(
            map(hash, map(tuple, before.support_images.flatten(1).tolist()))
        )


def test_tuning_finds_the_working_value_and_never_sees_a_test_image(make_stream, features):
    stream = make_stream()
    asked = []

    def watching(images):
        asked.append(images)
        return features(images)

    settings = {"on": "features", "seed": 0, "device": CPU, "tasks": 2, "fraction": 0.25}
    found = tune("naive", stream, "learning_rate", (1e-9, 1e-2), features=watching, epochs=10, **settings)
    assert found.best == 1e-2
    assert found.scores[1e-2] > found.scores[1e-9]
    blind = tune(
        "naive",
        without_tests(stream),
        "learning_rate",
        (1e-9, 1e-2),
        features=features,
        epochs=10,
        **settings,
    )
    assert blind == found
    tests = {tuple(image.flatten().tolist()) for task in stream.tasks for image in task.query_images}
    assert not tests & {tuple(image.flatten().tolist()) for images in asked for image in images}


def test_too_few_images_to_hold_out_are_named(make_stream):
    with pytest.raises(BadInputError, match=r"class 0 of task 'task \(0, 1\)' has 1 support"):
        held_out_stream(make_stream(shots=1), tasks=1, fraction=0.2, seed=0)
