"""The graphs over classes that ImageNet's specification has, one a split: inner nodes span leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class ClassGraph:
    """A directed acyclic graph of concepts and classes: every node with its children; classes are leaves.

    A node may have several parents, so a leaf may be reached in several ways; it is spanned once.
    """

    children: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        for node, children in self.children.items():
            for child in children:
                if child not in self.children:
                    raise BadInputError(f"node {node!r} has a child {child!r} that is not in the graph")
            if len(set(children)) != len(children):
                raise BadInputError(f"node {node!r} names a child twice")
        try:
            self._children_first  # noqa: B018  (a cycle is found now, not at the first episode)
        except CycleError as error:
            raise BadInputError(f"the graph has a cycle: {' -> '.join(error.args[1])}") from None

    @cached_property
    def _children_first(self) -> tuple[str, ...]:
        return tuple(TopologicalSorter(self.children).static_order())

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The classes, sorted."""
        return tuple(sorted(node for node, children in self.children.items() if not children))

    @cached_property
    def spans(self) -> Mapping[str, tuple[str, ...]]:
        """The leaves below each internal node, sorted; nodes too, so that a draw by position is stable."""
        reached: dict[str, frozenset[str]] = {}
        for node in self._children_first:
            below = self.children[node]
            reached[node] = (
                frozenset().union(*(reached[child] for child in below)) if below else frozenset([node])
            )
        return {node: tuple(sorted(reached[node])) for node in sorted(reached) if self.children[node]}

    def eligible(self, min_leaves: int, max_leaves: int) -> Mapping[str, tuple[str, ...]]:
        """The internal nodes that span between `min_leaves` and `max_leaves` leaves, with those leaves."""
        return {node: span for node, span in self.spans.items() if min_leaves <= len(span) <= max_leaves}

    def restricted(self, leaves: Collection[str]) -> ClassGraph:
        """The graph over some of the leaves, built as the benchmark builds its own from the classes it has.

        Nodes that reach none of the leaves go. A node left with one child is replaced by that child in all
        its parents: it would stand for the same classes and make them twice as likely to be picked.
        """
        unknown = sorted(set(leaves) - set(self.leaves))
        if unknown:
            raise BadInputError(
                f"{len(unknown)} classes are not leaves of the graph, the first: {unknown[0]!r}"
            )
        kept: dict[str, tuple[str, ...]] = {leaf: () for leaf in self.leaves if leaf in set(leaves)}
        stands_for: dict[str, str] = {leaf: leaf for leaf in kept}
        for node in self._children_first:
            # dict.fromkeys: children that shrank to the same node count once.
            below = tuple(dict.fromkeys(stands_for[c] for c in self.children[node] if c in stands_for))
            if len(below) == 1:
                stands_for[node] = below[0]
            elif below:
                stands_for[node] = node
                kept[node] = below
        return ClassGraph(kept)


@dataclass(frozen=True)
class Synset:
    """A node: a class if it has no children, else a group of classes."""

    wn_id: str
    words: str
    children: tuple[str, ...]
    parents: tuple[str, ...]

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> Synset:
        """From a node of dataset_spec.json."""
        return cls(node["wn_id"], node["words"], tuple(node["children_ids"]), tuple(node["parents_ids"]))

    def as_json(self) -> dict[str, Any]:
        """A node of dataset_spec.json."""
        return {
            "wn_id": self.wn_id,
            "words": self.words,
            "children_ids": list(self.children),
            "parents_ids": list(self.parents),
        }


Graph = tuple[Synset, ...]


def leaves(graph: Graph) -> list[str]:
    """Ids of the nodes without children."""
    return [node.wn_id for node in graph if not node.children]


def class_graph(graph: Graph) -> ClassGraph:
    """The graph by ids alone."""
    return ClassGraph({node.wn_id: node.children for node in graph})


def images_below(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Node id -> number of images of the leaves it spans; a leaf spans itself."""
    spans = class_graph(graph).spans
    return {node.wn_id: sum(sizes[leaf] for leaf in spans.get(node.wn_id, (node.wn_id,))) for node in graph}


def pruned(graph: Graph, kept: Collection[str]) -> Graph:
    """The graph over some of its leaves; see `ClassGraph.restricted`."""
    whole = class_graph(graph)
    children = whole.restricted(set(whole.leaves) & set(kept)).children
    parents = {node.wn_id: node.parents for node in graph}

    def remaining(wn_id: str) -> Iterator[str]:
        """Yield a parent that is kept, or else its own parents."""
        if wn_id in children:
            yield wn_id
        else:
            for parent in parents[wn_id]:
                yield from remaining(parent)

    return tuple(
        replace(
            node,
            children=children[node.wn_id],
            parents=tuple(dict.fromkeys(p for parent in node.parents for p in remaining(parent))),
        )
        for node in graph
        if node.wn_id in children
    )
