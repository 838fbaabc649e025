"""Which tasks a target has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from few_shot.coloured import coloured_folders

from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.few_shot.targets import TaskShape, make_sampler, refinement_steps, task_shapes


def test_shapes_of_the_papers_benchmarks() -> None:
    shapes = [(s.ways, s.shots, s.queries) for s in task_shapes("mini-imagenet")]
    assert shapes == [(5, 1, 10), (5, 5, 10), (10, 1, 10), (10, 5, 10)]
    assert task_shapes("tiered_imagenet") == task_shapes("mini-imagenet")
    assert task_shapes("meta-dataset") == (TaskShape(None, None, 10),)
    assert task_shapes("folder:x") == (TaskShape(5, 5, 10),)
    assert task_shapes("omniglot", variable=True) == (TaskShape(None, None, 10),)
    assert [s.words for s in task_shapes("cifar10", ways=(5, 20), shots=(1,))] == [
        "5-way 1-shot",
        "20-way 1-shot",
    ]
    assert task_shapes("cifar10", vary_queries=(30, 10)) == (TaskShape(5, 5, 10, 30), TaskShape(5, 5, 30, 30))


def test_shapes_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(BadInputError, match="no fixed ways"):
        task_shapes("meta-dataset", ways=(5,))
    with pytest.raises(BadInputError, match="no fixed ways"):
        task_shapes("cifar10", shots=(5,), variable=True)
    with pytest.raises(BadInputError, match="not both"):
        task_shapes("cifar10", queries=5, vary_queries=(10, 20))
    with pytest.raises(BadInputError, match="twice"):
        task_shapes("cifar10", vary_queries=(10, 10))


def test_refinement_is_longer_on_mini_imagenet() -> None:
    assert refinement_steps("mini-imagenet") == (2, 10)
    assert refinement_steps("tiered_imagenet") == (2, 10)
    assert refinement_steps("meta-dataset") == (2, 4)


@pytest.fixture
def coloured(tmp_path: Path) -> EvaluationSet:
    return evaluation_set(open_source(f"folder:{coloured_folders(tmp_path / 'photos', 6, 24)}"))


@pytest.mark.parametrize("fixed", [True, False])
def test_tasks_with_fewer_queries_are_the_same_tasks(coloured: EvaluationSet, fixed: bool) -> None:
    ways, shots = (5, 3) if fixed else (None, None)
    few = make_sampler(coloured, TaskShape(ways, shots, 4, 10), seed=3)
    many = make_sampler(coloured, TaskShape(ways, shots, 10, 10), seed=3)
    for index in range(5):
        a, b = few.episode(index), many.episode(index)
        assert a.class_names == b.class_names
        assert np.array_equal(a.support, b.support)
        assert a.queries.tolist() == [4] * a.way
        for k in range(a.way):
            assert a.query[a.query[:, 0] == k, 1].tolist() == b.query[b.query[:, 0] == k, 1].tolist()[:4]


def test_task_i_is_a_function_of_seed_and_i(coloured: EvaluationSet) -> None:
    shape = TaskShape(None, None)
    one, other = make_sampler(coloured, shape, seed=1), make_sampler(coloured, shape, seed=1)
    one.episode(0)
    assert one.episode(7) == other.episode(7)
    assert one.episode(7) != one.episode(8)
    assert one.episode(7) != make_sampler(coloured, shape, seed=2).episode(7)
