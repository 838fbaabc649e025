from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_cnaps.episodes import ClassGraph
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


def test_restricting_drops_empty_nodes_and_merges_those_left_with_one_child():
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
def test_a_restricted_graph_spans_what_is_left_of_each_span(graph, data):
    leaves = data.draw(st.sets(st.sampled_from(graph.leaves)))
    small = graph.restricted(leaves)
    assert small.leaves == tuple(sorted(leaves))
    for node, span in small.spans.items():
        assert span == tuple(leaf for leaf in graph.spans[node] if leaf in leaves)
        assert len(small.children[node]) >= 2
    # No set of classes that some concept still stands for is lost, and none is invented.
    left = {tuple(leaf for leaf in span if leaf in leaves) for span in graph.spans.values()}
    assert set(small.spans.values()) == {span for span in left if len(span) >= 2}
