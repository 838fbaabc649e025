from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cl_cnaps.continual.baselines.inputs import StreamInputs, feature_view, image_view, is_grey
from cl_cnaps.errors import BadInputError


def test_each_image_is_embedded_once(make_stream, features):
    embedded = []

    def counting(images):
        embedded.append(len(images))
        return features(images)

    inputs = StreamInputs(make_stream(), feature_view(counting))
    assert sum(embedded) == 3 * 24
    for _ in range(3):
        assert inputs.query(1).shape == (12, 24)
    assert sum(embedded) == 3 * 24 + 12


def test_class_ids_need_not_start_at_zero(make_stream):
    inputs = StreamInputs(make_stream(((7, 3), (11,))), image_view(grey=True))
    assert inputs.class_ids.tolist() == [3, 7, 11]
    assert [classes.tolist() for classes in inputs.classes] == [[0, 1], [2]]
    assert inputs.labels[0].tolist() == [1] * 12 + [0] * 12


def test_image_views(make_stream):
    grey, colour = make_stream(size=96), make_stream(size=96, grey=False)
    assert is_grey(grey)
    assert not is_grey(colour)
    small = image_view(grey=True)(grey.tasks[0].support_images)
    assert small.shape == (24, 1, 28, 28)
    assert small.dtype == torch.uint8
    assert image_view(grey=False)(colour.tasks[0].support_images).shape == (24, 3, 32, 32)
    exact = make_stream(size=28).tasks[0].support_images
    assert torch.equal(image_view(grey=True)(exact), exact[:, :1])


def test_a_feature_function_of_the_wrong_shape_is_named(make_stream):
    with pytest.raises(BadInputError, match=r"gave shape \(24, 3, 28, 28\) for 24 images; wanted N x D"):
        StreamInputs(make_stream(), feature_view(lambda images: images.float()))
    with pytest.raises(BadInputError, match="not finite"):
        StreamInputs(make_stream(), feature_view(lambda images: torch.full((len(images), 2), float("nan"))))


def test_streams_that_do_not_hang_together_are_named(make_stream):
    stream = make_stream()
    wrong = replace(stream.tasks[1], classes=(2, 8))
    with pytest.raises(
        BadInputError, match=r"task 1 \(task \(2, 3\)\).*lists classes \[2, 8\].*of classes \[2, 3\]"
    ):
        StreamInputs(replace(stream, tasks=(stream.tasks[0], wrong)), image_view(grey=True))
    short = replace(stream.tasks[0], support_labels=stream.tasks[0].support_labels[:5])
    with pytest.raises(BadInputError, match="24 support images and 5 labels"):
        StreamInputs(replace(stream, tasks=(short,)), image_view(grey=True))
    with pytest.raises(BadInputError, match="has no tasks"):
        StreamInputs(replace(stream, tasks=()), image_view(grey=True))
