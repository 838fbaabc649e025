from __future__ import annotations

from pathlib import Path

import pytest
from data.specs import GRAPH
from hypothesis import given
from hypothesis import strategies as st

from cl_cnaps.data import open_source
from cl_cnaps.data.spec import read_spec
from cl_cnaps.data.wordnet import Graph, Synset, class_graph, images_below, leaves, pruned
from cl_cnaps.errors import BadInputError

TRAIN: Graph = tuple(map(Synset.from_json, GRAPH["split_subgraphs"]["TRAIN"]))


def edges(graph: Graph) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    down = {(node.wn_id, child) for node in graph for child in node.children}
    up = {(parent, node.wn_id) for node in graph for parent in node.parents}
    return down, up


def test_spans_count_a_class_once() -> None:
    assert class_graph(TRAIN).spans["animal"] == ("cat", "dog", "wolf")
    assert images_below(TRAIN, {"cat": 1, "dog": 2, "wolf": 3, "hammer": 4, "saw": 5})["animal"] == 6


def test_pruned_nodes() -> None:
    kept = pruned(TRAIN, {"cat", "dog", "hammer"})
    assert {node.wn_id: node.children for node in kept} == {
        # wild is left with dog alone, tool with hammer alone: both give way to their child
        "root": ("animal", "hammer"),
        "animal": ("pet", "dog"),
        "pet": ("cat", "dog"),
        "cat": (),
        "dog": (),
        "hammer": (),
    }
    assert next(node for node in kept if node.wn_id == "dog").parents == ("pet", "animal")


def test_a_root_with_one_child_gives_way_too() -> None:
    kept = pruned(TRAIN, {"hammer", "saw"})
    assert [node.wn_id for node in kept] == ["tool", "hammer", "saw"]
    assert kept[0].parents == ()
    assert pruned(TRAIN, {"wolf"}) == (Synset("wolf", "the wolf", (), ()),)
    assert pruned(TRAIN, set()) == ()


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Any graph of up to 9 nodes: children always have a higher number."""
    size = draw(st.integers(1, 9))
    children = {
        i: draw(st.lists(st.integers(i + 1, size - 1), unique=True, max_size=4)) if i < size - 1 else []
        for i in range(size)
    }
    return tuple(
        Synset(
            str(i), "", tuple(map(str, children[i])), tuple(str(p) for p in range(size) if i in children[p])
        )
        for i in range(size)
    )


@given(graphs(), st.data())
def test_pruned_graph_keeps_groups(graph: Graph, data: st.DataObject) -> None:
    kept = set(data.draw(st.lists(st.sampled_from(leaves(graph)), unique=True)))
    result = pruned(graph, kept)
    down, up = edges(result)
    assert down == up
    assert set(leaves(result)) == kept
    assert all(len(node.children) != 1 for node in result)
    groups = {frozenset(span) & kept for span in class_graph(graph).spans.values()}
    assert set(map(frozenset, class_graph(result).spans.values())) == {one for one in groups if len(one) > 1}


def test_a_child_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInputError, match="a child 'b' that is not in the graph"):
        class_graph((Synset("a", "", ("b",), ()),))


def test_graph_of_mini_imagenet(shared_data: Path, official_specs: Path) -> None:
    from cl_cnaps.episodes.spec import ClassGraph

    spec = read_spec(official_specs / "ilsvrc_2012_dataset_spec.json")
    source = open_source("mini-imagenet", root=shared_data)
    present = {name for split in source.splits for name in source.classes(split)}
    assert spec.graphs is not None
    for split, expected in (("TRAIN", 65), ("VALID", 19), ("TEST", 16)):
        graph = spec.graphs[split]
        kept = pruned(graph, present & set(leaves(graph)))
        assert len(leaves(kept)) == expected
        # The sampler shrinks graphs by an algorithm of its own; the two must agree.
        whole = ClassGraph({node.wn_id: node.children for node in graph})
        other = whole.restricted(present & set(leaves(graph))).children
        assert {node.wn_id: set(node.children) for node in kept} == {n: set(c) for n, c in other.items()}
