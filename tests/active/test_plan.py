"""Which images are labelled, pool and test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from data.pictures import class_folders

from cl_cnaps.active.plan import FIGURE_ALPHABETS, PAPER, ActivePlan, Protocol, make_plan
from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError


@pytest.fixture
def photos(tmp_path: Path) -> str:
    return f"folder:{class_folders(tmp_path / 'photos', dict.fromkeys('abc', 16))}"


def rows(plan: ActivePlan, run: int = 0, task: int = 0) -> tuple[list[list[int]], ...]:
    """Initial, pool and test images as (class, number)."""
    draw = plan.draw(plan.tasks[task], run)
    support, query = draw.episode.support.tolist(), draw.episode.query.tolist()
    return support[: draw.initial], support[draw.initial :], query


def sets(plan: ActivePlan, run: int = 0) -> tuple[set[tuple[int, ...]], ...]:
    return tuple({tuple(row) for row in part} for part in rows(plan, run))


def test_one_pool_of_images_is_dealt_out_without_repeats(photos: str) -> None:
    plan = make_plan(open_source(photos))
    assert plan.protocol == Protocol(initial=4, per_round=1, rounds=9, runs=4, pool=8, test=4)
    initial, pool, test = sets(plan)
    assert (len(initial), len(pool), len(test)) == (12, 24, 12)
    assert len(initial | pool | test) == 48
    assert sets(plan, run=1) != (initial, pool, test)


def test_a_larger_pool_holds_the_smaller(photos: str) -> None:
    source = open_source(photos)
    small, large = (make_plan(source, given={"pool": n, "per_round": 1}) for n in (3, 7))
    assert sets(small)[0] == sets(large)[0]
    assert sets(small)[1] < sets(large)[1]
    assert rows(small)[2] == rows(large)[2]


def test_pool_and_test_are_shuffled(photos: str) -> None:
    source = open_source(photos)
    _, pool, test = rows(make_plan(source))
    for part in (pool, test):
        classes = [row[0] for row in part]
        assert classes != sorted(classes)
    assert rows(make_plan(source, seed=1))[1] != pool
    assert rows(make_plan(source))[1] == pool


def test_labels_and_tests_come_from_their_splits(tmp_path: Path) -> None:
    counts = {**{f"train/{name}": 9 for name in "ab"}, **{f"test/{name}": 5 for name in "ab"}}
    source = open_source(f"folder:{class_folders(tmp_path / 'photos', counts)}")
    plan = make_plan(source, given={"initial": 2, "per_round": 1})
    initial, pool, test = rows(plan)
    assert {number for _, number in initial + pool} == set(range(9))
    assert {number for _, number in test} == set(range(9, 14))
    image = plan.tasks_of.images.images("test", "b", [9], 8)
    assert np.array_equal(image, source.images("test", "b", [0], 8))


def test_too_little_is_an_error_that_says_what_to_do(photos: str) -> None:
    source = open_source(photos)
    for given, words in (
        ({"initial": 9, "pool": 9}, "has 16 images; 9 initial labels, a pool of 9, 1 test images need 19"),
        ({"rounds": 25}, "25 rounds of 1 labels need a pool of 25 images; that of photos has 24"),
        ({"rounds": 0}, "rounds is 0"),
    ):
        with pytest.raises(BadInputError, match=words):
            make_plan(source, given=given)
    with pytest.raises(BadInputError, match="protocols for cifar10 and omniglot, not for photos"):
        make_plan(source, paper=True)
    with pytest.raises(BadInputError, match="no alphabets"):
        make_plan(source, alphabets=("Greek",))
    with pytest.raises(BadInputError, match="seed"):
        make_plan(source, seed=2**32)


def test_any_number_can_be_given_by_itself(tmp_path: Path) -> None:
    source = open_source(f"folder:{class_folders(tmp_path / 'photos', dict.fromkeys('abcd', 12))}")
    for name, value in (
        ("initial", 5),
        ("test", 6),
        ("pool", 2),
        ("per_round", 5),
        ("rounds", 2),
        ("runs", 1),
    ):
        protocol = make_plan(source, given={name: value}).protocol
        assert getattr(protocol, name) == value
        assert protocol.initial + (protocol.pool or 0) + (protocol.test or 0) <= 12
        assert protocol.rounds * protocol.per_round <= 4 * (protocol.pool or 0)
    with pytest.raises(BadInputError, match="1 rounds of 50 labels need a pool of 50 images"):
        make_plan(source, given={"per_round": 50})


def test_what_is_no_task_is_refused(tmp_path: Path) -> None:
    for name, counts, words in (
        ("one", {"a": 12}, "a task of 1 classes"),
        ("few", {"a": 1, "b": 1}, "a task of 0 classes"),
        ("half", {"train/a": 9, "train/b": 9, "test/a": 9}, "has 'b' in only one of its splits"),
    ):
        source = open_source(f"folder:{class_folders(tmp_path / name, counts)}")
        with pytest.raises(BadInputError, match=words):
            make_plan(source)


@pytest.fixture
def omniglot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    names = {f"images_evaluation/{a}/character{i:02}": 20 for a in ("Greek", "Old_Church") for i in range(5)}
    class_folders(tmp_path / "omniglot", {"images_background/Latin/character01": 2, **names})
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path))
    return "omniglot"


def test_omniglot_is_a_task_for_each_alphabet(omniglot: str) -> None:
    source = open_source(omniglot)
    plan = make_plan(source, paper=True)
    assert [task.name for task in plan.tasks] == ["Greek", "Old_Church"]
    assert plan.protocol == PAPER["omniglot"]
    initial, pool, test = rows(plan)
    assert (len(initial), len(pool), len(test)) == (25, 50, 25)
    assert [task.name for task in make_plan(source).tasks] == ["Greek", "Old_Church"]  # not the figure's
    assert [task.name for task in make_plan(source, alphabets=("old church",)).tasks] == ["Old_Church"]
    assert len(make_plan(source, alphabets=("all",)).tasks) == 2
    with pytest.raises(BadInputError, match="no alphabet 'Latin'; it has Greek, Old_Church"):
        make_plan(source, alphabets=("Latin",))
    for given in (("all", "Klingon"), ("Greek", "all")):
        with pytest.raises(
            BadInputError, match=r"--alphabet is all or some names, not all and (Klingon|Greek)"
        ):
            make_plan(source, alphabets=given)
    assert len(make_plan(source, alphabets=("all", "all")).tasks) == 2


def test_the_papers_protocols_on_real_images(shared_data: Path) -> None:
    source = open_source("omniglot", root=shared_data)
    assert len(make_plan(source, paper=True).tasks) == 20
    assert tuple(task.name for task in make_plan(source).tasks) == FIGURE_ALPHABETS
    plan = make_plan(open_source("cifar10", root=shared_data), paper=True)
    assert plan.protocol.rounds + 1 == 30
    initial, pool, test = rows(plan)
    assert len(initial) == 50
    count = sum(plan.learn_from.values()) if plan.learn_from else 0
    assert len(initial) + len(pool) == count
    assert len(test) == sum(plan.tasks_of.classes.classes.sizes) - count
