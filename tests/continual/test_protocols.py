"""The streams of the field: unequal tasks, published orders and lists, other domains, classes that come back."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from continual.small_strategies import make
from continual.small_streams import task_of_classes
from PIL import Image

from cl_cnaps.continual.benchmarks import StreamConfig, open_sources, plan_stream, source_names
from cl_cnaps.continual.planning import legacy_order, ordered, read_class_order, task_sizes
from cl_cnaps.continual.plans import PERMUTED_PIXELS, Permuted, Rotated, StreamPlan
from cl_cnaps.continual.stream import Stream
from cl_cnaps.data import Source, open_source
from cl_cnaps.errors import BadInputError, MissingDataError

NOWHERE = Path("there is none")


@pytest.fixture(scope="module")
def digits() -> Source:
    return open_source("mnist", root=NOWHERE, download=False)


def plan(benchmark: str, *sources: Source, **options: object) -> StreamPlan:
    return plan_stream(StreamConfig(benchmark, **options), *sources)  # type: ignore[arg-type]


def sizes(made: StreamPlan) -> list[int]:
    return [len(task.classes) for task in made.tasks]


def folder(root: Path, counts: dict[str, int], names: str = "{:04}") -> Source:
    """Images of noise, so that no two are alike; class folders of the given sizes."""
    rng = np.random.default_rng(len(counts))
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{names.format(i)}.png")
    return open_source(f"folder:{root}")


# Sizes and orders.


def test_sizes_of_tasks() -> None:
    assert task_sizes(100, 50, 10) == [50, 10, 10, 10, 10, 10]
    assert task_sizes(10, 0, 4) == [4, 4, 2]
    assert task_sizes(10, 10, 4) == [10]
    assert task_sizes(10, 0, (5, 3)) == [5, 3]


def test_tasks_print_as_the_field_writes_them(digits: Source) -> None:
    assert plan("split-mnist", digits).protocol == "B0-Inc2"
    assert plan("split-mnist", digits, base_classes=4).protocol == "B4-Inc2"
    assert plan("split-mnist", digits, base_classes=4, classes_per_task=4).protocol == "B0-Inc4"
    assert plan("split-mnist", digits, classes_per_task=(4, 1, 3, 2)).protocol is None
    assert plan("split-mnist", digits, classes_per_task=(4, 1, 3, 2)).notes == ()
    assert plan("split-mnist", digits, classes_per_task=(5, 4)).notes == ("9 of 10 classes are in a task",)
    short = plan("mnist:B4-Inc3", digits, queries=10)
    assert (sizes(short), short.protocol, short.shots) == ([4, 3, 3], "B4-Inc3", 300)
    assert short.class_names == tuple(legacy_order([str(d) for d in range(10)], 1993))
    assert source_names("cifar100:B50-Inc10") == source_names("split-cifar100:B0-Inc10") == ("cifar100",)
    with pytest.raises(BadInputError, match="names the sizes of its tasks"):
        plan("mnist:B4-Inc3", digits, classes_per_task=2)


def test_the_published_order_is_numpys_legacy_permutation(tmp_path: Path) -> None:
    np.random.seed(1993)
    expected = np.random.permutation(100)
    assert legacy_order([str(i) for i in range(100)], 1993) == [str(i) for i in expected]
    assert read_class_order("seed:1993") == 1993
    assert read_class_order("cat, dog") == ("cat", "dog")
    file = tmp_path / "order.txt"
    file.write_text("1\n0\n\n2\n")
    order = read_class_order(str(file))
    assert ordered(("ant", "bee", "cat"), order, None, "pets") == ["bee", "ant", "cat"]
    for text, message in (("seed:x", "needs a seed"), ("seed:-1", "needs a seed")):
        with pytest.raises(BadInputError, match=message):
            read_class_order(text)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(BadInputError, match="is empty"):
        read_class_order(str(tmp_path / "empty.txt"))
    with pytest.raises(BadInputError, match=r"no permutation: it names the class 'bee' twice"):
        ordered(("ant", "bee"), ("1", "1"), None, "pets")


# Shots.


def test_all_images_of_unequal_classes_and_other_shots_at_first(tmp_path: Path) -> None:
    source = folder(tmp_path / "pets", {"ant": 9, "bee": 12, "cat": 7, "dog": 20})
    made = plan("folder:pets", source, shots="all", queries=3)
    assert [one.shots for task in made.tasks for one in task.classes] == [6, 9, 4, 17]
    assert made.shots == "4-17"
    stream = made.stream(0, 8)
    assert torch.bincount(torch.cat([t.support_labels for t in stream.tasks])).tolist() == [6, 9, 4, 17]
    everything = torch.cat([torch.cat([t.support_images, t.query_images]) for t in stream.tasks])
    assert len({image.numpy().tobytes() for image in everything}) == len(everything) == 48
    later = plan("folder:pets", source, base_shots="all", shots=2, queries=3)
    assert [one.shots for task in later.tasks for one in task.classes] == [6, 9, 2, 2]
    assert later.shots == "6-9, then 2"
    assert plan("folder:pets", source, shots="all").queries == 3  # half of the smallest class
    with pytest.raises(BadInputError, match="class 'ant' of pets has 9 images; all but 9 queries need 10"):
        plan("folder:pets", source, shots="all", queries=9)


# Domains.


def test_mnist_in_other_domains_has_the_same_classes_in_every_task(digits: Source) -> None:
    for name, tasks in (("permuted-mnist", 10), ("rotated-mnist", 6)):
        made = plan(name, digits, shots=3, queries=2)
        assert sizes(made) == [10] * tasks
        assert made.class_names == tuple(str(digit) for digit in range(10))
        stream = made.stream(0, 28)
        assert all(task.classes == tuple(range(10)) for task in stream.tasks)
        assert made.protocol is None
    with pytest.raises(BadInputError, match="has all classes: leave --classes-per-task out"):
        plan("rotated-mnist", digits, classes_per_task=2)


def test_permuting_moves_pixels_and_turning_turns(digits: Source) -> None:
    def shown(view) -> torch.Tensor:
        return view(digits, "train", "3", [0, 1], PERMUTED_PIXELS)

    plain, permuted = shown(Permuted(0)), shown(Permuted(4))
    assert not torch.equal(plain, permuted)
    assert torch.equal(plain.flatten(1).sort().values, permuted.flatten(1).sort().values)
    # One order for all images and channels: pixels that were equal in both images still are.
    order = torch.randperm(PERMUTED_PIXELS**2, generator=torch.Generator().manual_seed(4))
    assert torch.equal(permuted.flatten(2), plain.flatten(2)[:, :, order])
    assert torch.equal(shown(Rotated(0)), plain)
    quarter = shown(Rotated(90))
    assert (quarter.int() - torch.rot90(plain, 1, (2, 3)).int()).abs().max() <= 1
    assert Permuted(4)(digits, "train", "3", [], 16).shape == (0, 3, 16, 16)


def test_sources_that_share_classes_are_domains(tmp_path: Path) -> None:
    photos = folder(tmp_path / "photos", {"ant": 6, "bee": 6, "cat": 6})
    drawings = folder(tmp_path / "drawings", {"bee": 6, "cat": 6, "dog": 6})
    made = plan("domains:photos,drawings", photos, drawings)
    assert [(task.name, task.class_names) for task in made.tasks] == [
        ("photos", ("bee", "cat")),
        ("drawings", ("bee", "cat")),
    ]
    assert made.origin == f"{photos.origin}; {drawings.origin}"
    assert made.digest() not in (photos.digest(), drawings.digest())
    with pytest.raises(BadInputError, match="photos, words share no class"):
        plan("domains:photos,words", photos, folder(tmp_path / "words", {"x": 4, "y": 4}))


def test_mixed_domains_take_a_source_a_task(digits: Source, tmp_path: Path) -> None:
    glyphs = open_source("glyphs", root=NOWHERE, download=False)
    made = plan("mixed-offline", digits, glyphs, shots=3, queries=2)
    assert [task.name for task in made.tasks] == ["mnist", "glyphs"]
    assert sizes(made) == [5, 5]
    assert all(name.startswith("mnist/") for name in made.tasks[0].class_names)
    assert made.class_names == plan("mixed-offline", digits, glyphs, shots=3, queries=2).class_names
    other = plan("mixed-offline", digits, glyphs, shots=3, queries=2, seed=1)
    assert made.class_names != other.class_names
    assert made.stream(0, 16).tasks[1].support_images.shape == (15, 3, 16, 16)
    few = folder(tmp_path / "few", {"ant": 4, "bee": 4})
    with pytest.raises(BadInputError, match="few has 2 classes; 5 a task"):
        plan("mixed:mnist,few", digits, few)
    for name in ("mixed:mnist", "mixed:mnist,mnist", "domains:a,"):
        with pytest.raises(BadInputError, match="needs two different sources or more"):
            source_names(name)


def test_mixed_domains_open_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"mixed-domains needs two of mnist, .* there are 1"):
        open_sources("mixed-domains", partial(open_source, root=tmp_path, download=False))
    folder(tmp_path / "vgg_flower", dict.fromkeys("abcde", 4))
    found = open_sources("mixed-domains", partial(open_source, root=tmp_path, download=False))
    assert [source.name for source in found] == ["mnist", "vgg_flower"]
    with pytest.raises(MissingDataError):
        open_sources("mixed:mnist,omniglot", partial(open_source, root=tmp_path, download=False))


# Classes that come back.


def test_classes_come_back_with_new_images_and_the_same_queries(digits: Source) -> None:
    made = plan("split-mnist", digits, repeat=1, shots=20, queries=10)
    assert sizes(made) == [2, 3, 3, 3, 3]
    assert made.class_names == tuple(str(digit) for digit in range(10))
    assert made.protocol is None
    drawn: dict[str, list[int]] = {}
    queries: dict[str, set[tuple[int, ...]]] = {}
    for task in made.tasks:
        for one in task.classes:
            support, query = one.draw(0, 0)
            assert len(support) == 20
            drawn.setdefault(one.name, []).extend(support)
            queries.setdefault(one.name, set()).add(tuple(query))
    assert any(len(numbers) > 20 for numbers in drawn.values())
    assert all(len(set(numbers)) == len(numbers) for numbers in drawn.values())
    assert all(len(found) == 1 for found in queries.values())
    plain = plan("split-mnist", digits, shots=20, queries=10).tasks[3].classes[0]
    assert plain.draw(0, 0) == made.tasks[3].classes[0].draw(0, 0)


def test_one_pool_has_enough_for_every_turn(tmp_path: Path) -> None:
    source = folder(tmp_path / "pets", {"ant": 12, "bee": 12, "cat": 12, "dog": 12})
    made = plan("folder:pets", source, repeat=1, shots=3, queries=4)
    first = {one.name: one for task in made.tasks for one in task.classes if one.turn == 0}
    again = [one for task in made.tasks for one in task.classes if one.turn > 0]
    assert len(again) == 1
    for one in (*first.values(), *again):
        support, query = one.draw(0, 0)
        assert not set(support) & set(query)
    assert not set(again[0].draw(0, 0)[0]) & set(first[again[0].name].draw(0, 0)[0])
    with pytest.raises(BadInputError, match="12 images; 10 shots and 4 queries need 14"):
        plan("folder:pets", source, repeat=2, shots=5, queries=4)


def test_cnaps_merges_a_class_that_comes_back_by_count() -> None:
    tasks = (task_of_classes((0, 1), 6, 4, 0), task_of_classes((1, 2), 3, 4, 1))
    stream = Stream("again", tasks)
    learner = make().model
    for number, task in enumerate(stream.tasks):
        learner.learn(task.support_images, task.support_labels, number)
    counts = {
        key.label: float(count)
        for group in learner.memory.groups
        for key, count in zip(group.keys, group.gaussians.counts_K, strict=True)
    }
    assert counts == {0: 6, 1: 9, 2: 3}


# Few-shot class-incremental streams.


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("birds") / "cu_birds"
    return folder(root, {f"{i:03}.Bird_{i}": 7 for i in range(1, 201)}, names="Bird_{:02}")


def write_lists(root: Path, images: int = 5, name: str = "Bird_{:02}.jpg") -> Path:
    root.mkdir(exist_ok=True)
    for session in range(2, 12):
        first = 101 + 10 * (session - 2)
        lines = [
            f"CUB/images/{i:03}.Bird_{i}/{name.format(k + 1)}"
            for i in range(first, first + 10)
            for k in range(images)
        ]
        (root / f"session_{session}.txt").write_text("\n".join(lines) + "\n")
    return root


def test_fscil_uses_listed_images_and_all_of_the_base(birds: Source, tmp_path: Path) -> None:
    made = plan("fscil-cub", birds, lists=write_lists(tmp_path / "lists"), queries=2)
    assert sizes(made) == [100] + [10] * 10
    assert (made.tasks[0].classes[0].shots, made.tasks[1].classes[0].shots) == (5, 5)
    assert made.notes == ()
    one = made.tasks[4].classes[3]
    support, query = one.draw(0, 0)
    assert support == [1, 2, 3, 4, 5] == one.draw(9, 3)[0]
    assert set(query) == {0, 6}
    assert made.listed[one.name] == [1, 2, 3, 4, 5]
    assert made.stream(0, 8).tasks[1].support_images.shape == (50, 3, 8, 8)


def test_a_seeded_draw_stands_in_for_images_that_are_not_there(birds: Source, tmp_path: Path) -> None:
    lists = write_lists(tmp_path / "lists", name="White_Bird_{:02}.jpg")
    made = plan("fscil-cub", birds, lists=lists, queries=2)
    (note,) = made.notes
    assert note.startswith(
        "sessions 2, 3, 4, 5, 6, 7, 8, 9, 10, 11: listed images are not there, such as White_Bird_01;"
    )
    assert note.endswith("a seeded draw stands in")
    assert made.listed == {}
    assert plan("fscil-cub", birds).notes == (
        "no image lists: the images of novel sessions are a seeded draw",
    )


def test_bad_lists_are_refused(birds: Source, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"session_2.txt cannot be read; --lists needs session_2"):
        plan("fscil-cub", birds, lists=tmp_path)
    with pytest.raises(BadInputError, match="names 40 images; a session has 10 x 5"):
        plan("fscil-cub", birds, lists=write_lists(tmp_path / "short", images=4))
    unknown = write_lists(tmp_path / "lists")
    file = unknown / "session_3.txt"
    file.write_text(file.read_text().replace("111.Bird_111", "999.Dodo"))
    with pytest.raises(BadInputError, match=r"name the class '999.Dodo', which is not there"):
        plan("fscil-cub", birds, lists=unknown)
    twice = write_lists(tmp_path / "twice")
    file = twice / "session_4.txt"
    file.write_text(file.read_text().replace("Bird_02.jpg", "Bird_01.jpg"))
    with pytest.raises(
        BadInputError, match=r"session 4 names 4 different images of '121.Bird_121'; a class has 5"
    ):
        plan("fscil-cub", birds, lists=twice)
    whole = copy.copy(birds)
    whole.complete = True  # type: ignore[attr-defined]  # every image of the data set is there, so the list is wrong
    missing = write_lists(tmp_path / "missing", name="White_Bird_{:02}.jpg")
    with pytest.raises(
        BadInputError, match="session 2 names the image White_Bird_01, which cu_birds does not have"
    ):
        plan("fscil-cub", whole, lists=missing)
    with pytest.raises(BadInputError, match="has its own sessions: leave --classes-per-task out"):
        plan("fscil-cub", birds, classes_per_task=5)


def test_numbers_of_the_training_set_are_found_in_their_class(tmp_path: Path) -> None:
    root = tmp_path / "cifar100"
    rng = np.random.default_rng(0)
    for split, images in (("train", 6), ("test", 2)):
        for i in range(100):
            (root / split / f"c{i:02}").mkdir(parents=True)
            for k in range(images):
                pixels = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / f"c{i:02}" / f"{6 * i + k:05}.png")
    source = open_source(f"folder:{root}")
    lists = tmp_path / "cifar_lists"
    lists.mkdir()
    for session in range(2, 10):
        first = 60 + 5 * (session - 2)
        numbers = [6 * i + k for i in range(first, first + 5) for k in range(5)]
        (lists / f"session_{session}.txt").write_text("\n".join(map(str, numbers)))
    made = plan("fscil-cifar100", source, lists=lists)
    assert made.notes == ()
    assert made.tasks[1].classes[0].draw(0, 0)[0] == [0, 1, 2, 3, 4]
    assert (made.tasks[0].classes[0].shots, made.queries) == (6, 2)
    # Files numbered another way: some numbers of a list are of its classes by chance, and none counts as listed.
    for path in lists.iterdir():
        path.write_text("\n".join(str(int(number) + 3) for number in path.read_text().split()))
    other = plan("fscil-cifar100", source, lists=lists)
    assert other.listed == {}
    assert "listed images are not there, such as 390; a seeded draw stands in" in other.notes[0]
