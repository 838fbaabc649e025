"""The WordNet graph of a split: which classes each concept spans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

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
