"""The graphs over classes that ImageNet's specification has, one a split: inner nodes span leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from cl_cnaps.errors import BadInputError


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


def spanned(graph: Graph) -> dict[str, frozenset[str]]:
    """Node id -> the leaves it spans; a leaf spans itself."""
    children = {node.wn_id: node.children for node in graph}
    try:
        order = list(TopologicalSorter(children).static_order())  # children come before their parents
    except CycleError as error:
        raise BadInputError(f"the graph runs in a circle: {' - '.join(error.args[1])}") from None
    unknown = [wn_id for wn_id in order if wn_id not in children]
    if unknown:
        raise BadInputError(f"the graph has no node {unknown[0]}, which is a child of another")
    found: dict[str, frozenset[str]] = {}
    for wn_id in order:
        below = (found[child] for child in children[wn_id])
        found[wn_id] = frozenset().union(*below) if children[wn_id] else frozenset({wn_id})
    return {node.wn_id: found[node.wn_id] for node in graph}


def images_below(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Node id -> number of images of the leaves it spans."""
    return {wn_id: sum(sizes[leaf] for leaf in span) for wn_id, span in spanned(graph).items()}


def pruned(graph: Graph, kept: Collection[str]) -> Graph:
    """The graph over some of its leaves, as Meta-Dataset builds graphs: no node has no leaf or one child.

    A node that is left with one child spans what the child spans, so the child takes its place.
    """
    spans = spanned(graph)
    kept = frozenset(kept)
    nodes = {node.wn_id: node for node in graph if spans[node.wn_id] & kept}
    for wn_id, node in nodes.items():
        nodes[wn_id] = replace(
            node,
            children=tuple(child for child in node.children if child in nodes),
            parents=tuple(parent for parent in node.parents if parent in nodes),
        )
    while single := next((node for node in nodes.values() if len(node.children) == 1), None):
        (child,) = single.children
        del nodes[single.wn_id]
        for parent in single.parents:
            nodes[parent] = replace(
                nodes[parent], children=_replaced(nodes[parent].children, single.wn_id, (child,))
            )
        nodes[child] = replace(
            nodes[child], parents=_replaced(nodes[child].parents, single.wn_id, single.parents)
        )
    return tuple(nodes[wn_id] for wn_id in nodes)


def _replaced(names: tuple[str, ...], old: str, new: tuple[str, ...]) -> tuple[str, ...]:
    """`names` with `new` in the place of `old`, each once."""
    longer = [name for entry in names for name in (new if entry == old else (entry,))]
    return tuple(dict.fromkeys(longer))
