"""From Avalanche's batches to images and a task."""

from __future__ import annotations

import pytest
import torch
from continual.small_streams import benchmark_of, small_stream

from cl_cnaps.continual.batches import as_images, experience_images, task_of
from cl_cnaps.errors import BadInputError

BYTES = torch.randint(0, 256, (5, 3, 6, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_floats_in_the_unit_interval_come_back_as_the_bytes_they_were() -> None:
    assert torch.equal(as_images(BYTES.float() / 255), BYTES)
    assert torch.equal(as_images(BYTES), BYTES)
    assert torch.equal(as_images(BYTES.double() / 255), BYTES)


@pytest.mark.parametrize("channels", [(slice(0, 1),), (0,)])
def test_grey_images_with_or_without_a_channel_become_three_equal_channels(
    channels: tuple[int | slice],
) -> None:
    images = as_images(BYTES[(slice(None), *channels)])
    assert images.shape == BYTES.shape
    assert all(torch.equal(images[:, c], BYTES[:, 0]) for c in range(3))


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (torch.randn(4, 3, 8, 8) - 1, r"expected images in \[0, 1\].*take the normalisation out"),
        (BYTES.float(), r"found values from .* to 255.00"),
        (torch.full((1, 1, 4, 4), float("nan")), r"expected images in \[0, 1\]"),
        (torch.zeros(4, 4, 8, 8), r"got shape \(4, 4, 8, 8\)"),
        (torch.zeros(4, 8), r"got shape \(4, 8\)"),
    ],
)
def test_what_cannot_be_an_image_is_refused_with_what_was_found(batch: torch.Tensor, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        as_images(batch)


def test_images_of_an_experience_come_in_order_whatever_the_batch_size() -> None:
    stream = small_stream()
    experience = benchmark_of(stream).test_stream[1]
    for size in (1, 5, 100):
        assert torch.equal(experience_images(experience, size), stream.tasks[1].query_images)


def test_the_task_is_the_label_or_zero_without_labels() -> None:
    stream = small_stream()
    batches = [(torch.zeros(2, 3, 4, 4), torch.tensor([4, 5]), torch.tensor([2, 2]))]
    assert task_of(benchmark_of(stream).train_stream[2], batches) == 2
    without = benchmark_of(stream, labelled=False).train_stream[2]
    assert task_of(without, [batch[:2] for batch in batches]) == 0


def test_several_task_labels_in_one_experience_are_refused() -> None:
    batches = [(torch.zeros(2, 3, 4, 4), torch.tensor([4, 5]), torch.tensor([2, 1]))]
    with pytest.raises(BadInputError, match=r"experience 0 has the task labels \[1, 2\]"):
        task_of(benchmark_of(small_stream()).train_stream[0], batches)
