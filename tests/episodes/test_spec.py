from __future__ import annotations

import json
from pathlib import Path

import pytest
from data.specs import FLAT, GRAPH, GROUPED
from hypothesis import given
from hypothesis import strategies as st

from cl_cnaps.data.spec import read_spec
from cl_cnaps.episodes import ClassGraph, ClassTable, SplitSpec
from cl_cnaps.episodes.spec import sampling_split
from cl_cnaps.errors import BadInputError

# An animal that is both a pet and a bird is one leaf with two parents.
ANIMALS = ClassGraph(
    {
        "animal": ("bird", "mammal", "pet"),
        "bird": ("parrot", "owl"),
        "mammal": ("dog", "cat", "bat"),
        "pet": ("parrot", "dog", "cat"),
        **dict.fromkeys(("parrot", "owl", "dog", "cat", "bat"), ()),
    }
)


def test_a_leaf_reached_twice_is_spanned_once():
    assert ANIMALS.spans == {
        "animal": ("bat", "cat", "dog", "owl", "parrot"),
        "bird": ("owl", "parrot"),
        "mammal": ("bat", "cat", "dog"),
        "pet": ("cat", "dog", "parrot"),
    }
    assert list(ANIMALS.spans) == sorted(ANIMALS.spans)


def test_eligible_bounds_are_inclusive():
    assert set(ANIMALS.eligible(3, 3)) == {"mammal", "pet"}
    assert set(ANIMALS.eligible(2, 5)) == {"animal", "bird", "mammal", "pet"}
    assert not ANIMALS.eligible(6, 9)


def test_restricted_nodes():
    small = ANIMALS.restricted(["dog", "cat", "owl"])
    # "bird" has only the owl left, so the owl hangs on "animal" itself; "mammal" and "pet" still branch.
    assert small.children == {
        "animal": ("owl", "mammal", "pet"),
        "mammal": ("dog", "cat"),
        "pet": ("dog", "cat"),
        **dict.fromkeys(("owl", "dog", "cat"), ()),
    }


def test_a_chain_shrinks_to_its_last_branching_node():
    chain = ClassGraph(
        {"top": ("middle", "x"), "middle": ("low",), "low": ("a", "b"), "x": (), "a": (), "b": ()}
    )
    assert chain.restricted(["a", "b"]).children == {"low": ("a", "b"), "a": (), "b": ()}


def test_restricting_to_all_or_none():
    assert ANIMALS.restricted(ANIMALS.leaves) == ANIMALS
    assert ANIMALS.restricted([]).children == {}
    with pytest.raises(BadInputError, match="'pet'"):
        ANIMALS.restricted(["dog", "pet"])


@pytest.mark.parametrize(
    ("children", "message"),
    [
        ({"a": ("b",)}, "child 'b'"),
        ({"a": ("b", "b"), "b": ()}, "twice"),
        ({"a": ("b",), "b": ("a",)}, "cycle"),
    ],
)
def test_what_is_no_hierarchy_is_refused(children, message):
    with pytest.raises(BadInputError, match=message):
        ClassGraph(children)


@st.composite
def graphs(draw: st.DrawFn) -> ClassGraph:
    """Acyclic, as node n has only children above n; leaves may have several parents."""
    size = draw(st.integers(2, 14))
    return ClassGraph(
        {
            f"n{n:02}": tuple(
                f"n{c:02}" for c in sorted(draw(st.sets(st.integers(n + 1, size - 1), max_size=4)))
            )
            if n < size - 1
            else ()
            for n in range(size)
        }
    )


@given(graph=graphs(), data=st.data())
def test_spans_of_a_restricted_graph(graph, data):
    leaves = data.draw(st.sets(st.sampled_from(graph.leaves)))
    small = graph.restricted(leaves)
    assert small.leaves == tuple(sorted(leaves))
    for node, span in small.spans.items():
        assert span == tuple(leaf for leaf in graph.spans[node] if leaf in leaves)
        assert len(small.children[node]) >= 2
    # No set of classes that some concept still stands for is lost, and none is invented.
    left = {tuple(leaf for leaf in span if leaf in leaves) for span in graph.spans.values()}
    assert set(small.spans.values()) == {span for span in left if len(span) >= 2}


TABLE = ClassTable(("a", "b", "c"), (10, 20, 30))


def test_restricted_table():
    table = SplitSpec(TABLE).restricted({"c": 3, "a": 40, "b": 0}).classes
    assert table == ClassTable(("a", "c"), (40, 3))


def test_restricting_to_nothing_leaves_an_empty_split():
    assert len(SplitSpec(TABLE).restricted({}).classes) == 0


def test_restricted_groups_and_graph():
    grouped = SplitSpec(TABLE, groups={"g": ("a", "b"), "h": ("c",)})
    graph = ClassGraph({"root": ("n", "c"), "n": ("a", "b"), "a": (), "b": (), "c": ()})
    assert grouped.restricted({"a": 4}).groups == {"g": ("a",)}
    small = SplitSpec(TABLE, graph=graph).restricted({"a": 4, "c": 2})
    assert small.graph is not None
    assert small.graph.children == {"root": ("a", "c"), "a": (), "c": ()}
    assert small.classes.sizes == (4, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("a", "a"), (5, 5)), "name 'a'"),
        ((("a",), (5, 6)), "1 names and 2 sizes"),
        ((("a",), (-1,)), "'a' has -1"),
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


def write(folder: Path, content: object) -> Path:
    path = folder / "dataset_spec.json"
    path.write_text(json.dumps(content))
    return path


def read_split(path: Path, split: str) -> SplitSpec:
    spec = read_spec(path)
    return sampling_split(spec, split, spec.class_names)


def test_plain_classes_by_split(tmp_path: Path) -> None:
    path = write(tmp_path, FLAT)
    train = read_split(path, "TRAIN")
    assert train.classes == ClassTable(("cat", "dog"), (4, 3))
    assert read_split(path, "TEST").classes == ClassTable(("007.Owl",), (2,))
    assert read_split(path, "train") == train
    with pytest.raises(BadInputError, match="pets has no split 'dev'; it has TRAIN, VALID, TEST"):
        read_split(path, "dev")
    assert train.groups is None
    assert train.graph is None


def test_pools_count_together(tmp_path: Path) -> None:
    pools = {str(k): {"train": 60 + k, "test": 10 + k} for k in range(4)}
    path = write(tmp_path, {**FLAT, "images_per_class": pools})
    assert read_split(path, "TRAIN").classes.sizes == (70, 72)


def test_alphabets_are_groups(tmp_path: Path) -> None:
    path = write(tmp_path, GROUPED)
    assert read_split(path, "TEST").groups == {
        "Latin": ("Latin-character01",),
        "Old-Norse": ("Old-Norse-character01", "Old-Norse-character02"),
    }
    assert read_split(path, "VALID").groups == {}


def test_a_graph_spans_the_classes_of_its_split(tmp_path: Path) -> None:
    train = read_split(write(tmp_path, GRAPH), "TRAIN")
    assert train.classes.names == ("cat", "dog", "wolf", "hammer", "saw")
    assert train.classes.sizes == (1, 2, 3, 4, 5)
    assert train.graph is not None
    assert train.graph.spans["animal"] == ("cat", "dog", "wolf")
