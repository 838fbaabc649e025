"""From Avalanche's batches to images and a task."""

from __future__ import annotations

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import AvalancheDataset
from continual.small_streams import benchmark_of, small_stream
from PIL import Image
from torch.utils.data import default_collate
from torchvision.transforms import Compose, Normalize, RandomCrop, ToTensor

from cl_cnaps.continual.batches import (
    PLAIN,
    Collate,
    Normalisation,
    as_images,
    joined_images,
    normalisation_of,
    plain_loader,
)
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
        (torch.randn(4, 3, 8, 8) - 1, r"expected images in \[0, 1\].*eval_transform without one"),
        (BYTES.float(), r"found values from .* to 255.00"),
        (torch.full((1, 1, 4, 4), float("nan")), r"expected images in \[0, 1\]"),
        (torch.zeros(4, 4, 8, 8), r"got shape \(4, 4, 8, 8\)"),
        (torch.zeros(4, 8, dtype=torch.uint8), r"got shape \(4, 8\)"),
    ],
)
def test_what_cannot_be_an_image_is_refused_with_what_was_found(batch: torch.Tensor, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        as_images(batch)


def test_images_come_in_order_whatever_the_batch_size() -> None:
    stream = small_stream()
    dataset = benchmark_of(stream).test_stream[1].dataset.eval()
    for size in (1, 5, 100):
        batches = list(plain_loader(dataset, size, {}, 32))
        assert torch.equal(joined_images(batches, PLAIN, 32), stream.tasks[1].query_images)


def test_a_loader_that_would_leave_images_out_is_refused() -> None:
    with pytest.raises(BadInputError, match="leave drop_last out"):
        plain_loader(benchmark_of(small_stream()).test_stream[1].dataset, 4, {"drop_last": True})


CIFAR = Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


class Wrapped:
    """A data set with a transform of its own, as torchvision's have."""

    def __init__(self, transform: object) -> None:
        self.transform = transform
        self.images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in BYTES]
        self.targets = [0, 0, 0, 1, 1]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[object, int]:
        image = self.images[index]
        return (image if self.transform is None else self.transform(image)), self.targets[index]  # type: ignore[operator]


@pytest.mark.parametrize("where", ["in the data set", "in the benchmark"])
def test_a_normalisation_is_found_and_undone_to_the_byte(where: str) -> None:
    transform = Compose([ToTensor(), Compose([CIFAR])])
    inner, outer = (transform, None) if where == "in the data set" else (None, transform)
    data = Wrapped(inner)
    benchmark = nc_benchmark(
        data, data, n_experiences=1, task_labels=False, train_transform=outer, eval_transform=outer
    )
    for dataset in (benchmark.train_stream[0].dataset.train(), benchmark.test_stream[0].dataset.eval()):
        found = normalisation_of(dataset)
        assert found == Normalisation(tuple(CIFAR.mean), tuple(CIFAR.std))
        batches = list(plain_loader(dataset, 2, {}, 32))
        assert torch.equal(joined_images(batches, found, 32), BYTES)


def test_each_group_of_transforms_has_its_own_normalisation() -> None:
    data = Wrapped(None)
    benchmark = nc_benchmark(
        data,
        data,
        n_experiences=1,
        task_labels=False,
        train_transform=Compose([RandomCrop(4), ToTensor(), CIFAR]),
        eval_transform=ToTensor(),
    )
    assert normalisation_of(benchmark.train_stream[0].dataset.train()) != PLAIN
    assert normalisation_of(benchmark.test_stream[0].dataset.eval()) == PLAIN


def test_images_that_are_normalised_twice_or_differently_are_refused() -> None:
    data = Wrapped(Compose([ToTensor(), CIFAR]))
    twice = nc_benchmark(data, data, n_experiences=1, task_labels=False, train_transform=CIFAR)
    with pytest.raises(BadInputError, match="normalised 2 times"):
        normalisation_of(twice.train_stream[0].dataset.train())
    mixed = AvalancheDataset([data, Wrapped(ToTensor())])
    with pytest.raises(BadInputError, match="in different ways"):
        normalisation_of(mixed)


def test_images_that_cannot_be_stacked_get_one_size_and_keep_their_labels() -> None:
    collate = Collate(default_collate, 16, PLAIN)
    grey = Image.new("L", (20, 10), 100)
    images, labels = collate([(grey, 3), (torch.full((3, 8, 8), 0.2), 4), (BYTES[0], 5)])
    assert images.shape == (3, 3, 16, 16)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [3, 4, 5]
    assert set(images[0].unique().tolist()) == {100}
    assert set(images[1].unique().tolist()) == {51}
    same, _ = collate([(torch.zeros(3, 8, 8), 0), (torch.ones(3, 8, 8), 1)])
    assert same.shape == (2, 3, 8, 8)  # as they are, for plugins
    # Batches of different sizes are brought to one size too.
    joined = joined_images([(torch.zeros(2, 3, 8, 8),), (torch.zeros(1, 3, 9, 9),)], PLAIN, 16)
    assert joined.shape == (3, 3, 16, 16)
