from __future__ import annotations

import pytest

from cl_cnaps.episodes import ClassGraph, ClassTable, DatasetSpec, SplitSpec
from cl_cnaps.errors import BadInputError

TABLE = ClassTable(("a", "b", "c"), (5, 6, 7), (10, 20, 30))


def test_restricting_keeps_order_and_ids_and_takes_the_sizes_that_are_there():
    spec = DatasetSpec("s", {"TEST": SplitSpec(TABLE)})
    table = spec.restricted({"c": 3, "a": 40, "b": 0}).split("TEST").classes
    assert table == ClassTable(("a", "c"), (5, 7), (40, 3))


def test_restricting_to_nothing_leaves_an_empty_split():
    assert len(DatasetSpec("s", {"TEST": SplitSpec(TABLE)}).restricted({}).split("TEST").classes) == 0


def test_restricting_groups_and_graphs_keeps_them_in_step_with_the_classes():
    grouped = SplitSpec(TABLE, groups={"g": ("a", "b"), "h": ("c",)})
    graph = ClassGraph({"root": ("n", "c"), "n": ("a", "b"), "a": (), "b": (), "c": ()})
    spec = DatasetSpec("s", {"TRAIN": grouped}).restricted({"a": 4})
    assert spec.split("TRAIN").groups == {"g": ("a",)}
    small = (
        DatasetSpec("s", {"TRAIN": SplitSpec(TABLE, graph=graph)}).restricted({"a": 4, "c": 2}).split("TRAIN")
    )
    assert small.graph is not None
    assert small.graph.children == {"root": ("a", "c"), "a": (), "c": ()}
    assert small.classes.sizes == (4, 2)


def test_an_unknown_class_is_an_error():
    with pytest.raises(BadInputError, match=r"s has no class 'd' \(1 of 2 unknown\)"):
        DatasetSpec("s", {"TEST": SplitSpec(TABLE)}).restricted({"a": 1, "d": 1})


def test_a_split_is_found_in_either_case_and_a_missing_one_names_those_there():
    spec = DatasetSpec.of_tables("mnist", {"TEST": {str(d): 100 for d in range(10)}})
    assert spec.split("test") is spec.split("TEST")
    assert spec.split("test").classes.names == tuple("0123456789")
    with pytest.raises(BadInputError, match="mnist has no split 'train'; it has TEST"):
        spec.split("train")
    with pytest.raises(BadInputError, match="case"):
        DatasetSpec.of_tables("x", {"TEST": {}, "test": {}})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("a", "a"), (0, 1), (5, 5)), "name 'a'"),
        ((("a", "b"), (1, 1), (5, 5)), "id 1"),
        ((("a",), (0, 1), (5,)), "1 names, 2 ids"),
        ((("a",), (0,), (-1,)), "'a' has -1"),
    ],
)
def test_what_is_no_class_table_is_refused(arguments, message):
    with pytest.raises(BadInputError, match=message):
        ClassTable(*arguments)


def test_structure_must_be_of_the_same_classes():
    graph = ClassGraph({"root": ("a", "b"), "a": (), "b": ()})
    with pytest.raises(BadInputError, match="differ"):
        SplitSpec(TABLE, graph=graph)
    with pytest.raises(BadInputError, match="exactly one group"):
        SplitSpec(TABLE, groups={"g": ("a", "b"), "h": ("b", "c")})
    with pytest.raises(BadInputError, match="not both"):
        SplitSpec(TABLE, groups={}, graph=graph)
