"""Which classes an episode has: from all of a split, from one alphabet, or from below one WordNet concept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator

from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.rules import MetaDatasetConfig, VariableConfig, draw_ways
from cl_cnaps.episodes.spec import SplitSpec
from cl_cnaps.errors import BadInputError


class ClassPicker(Protocol):
    """Draws the classes of one episode."""

    def pick(self, rng: Generator) -> IntArray:
        """Positions in the class table, distinct, in way order."""


@dataclass(frozen=True)
class AnyClasses:
    """Ways uniformly, then that many of all classes without replacement."""

    count: int
    config: VariableConfig

    def __post_init__(self) -> None:
        if self.count < self.config.min_ways:
            raise BadInputError(
                f"{self.count} classes are too few for episodes of at least {self.config.min_ways} ways"
            )

    def pick(self, rng: Generator) -> IntArray:
        """Positions in the class table, distinct, in way order."""
        return rng.choice(self.count, draw_ways(self.count, self.config, rng), replace=False)


@dataclass(frozen=True)
class OneGroup:
    """A group (Omniglot: an alphabet) uniformly, then ways and classes as in `AnyClasses` among its own."""

    groups: Mapping[str, IntArray]
    config: VariableConfig

    def __post_init__(self) -> None:
        for group, members in self.groups.items():
            if len(members) < self.config.min_ways:
                raise BadInputError(
                    f"group {group!r} has {len(members)} classes; an episode needs {self.config.min_ways}"
                )

    def pick(self, rng: Generator) -> IntArray:
        """Positions in the class table, distinct, in way order."""
        members = list(self.groups.values())[int(rng.integers(len(self.groups)))]
        return rng.choice(members, draw_ways(len(members), self.config, rng), replace=False)


@dataclass(frozen=True)
class BelowOneConcept:
    """A concept uniformly among the eligible; all classes it spans, or `max_ways` of them if it has more."""

    spans: Mapping[str, IntArray]
    max_ways: int

    def pick(self, rng: Generator) -> IntArray:
        """Positions in the class table, distinct, in way order."""
        span = list(self.spans.values())[int(rng.integers(len(self.spans)))]
        return rng.choice(span, self.max_ways, replace=False) if len(span) > self.max_ways else span


def class_picker(split: SplitSpec, config: MetaDatasetConfig) -> ClassPicker:
    """The picker that Meta-Dataset uses for a split of this structure."""
    position = {name: k for k, name in enumerate(split.classes.names)}

    def positions(names: tuple[str, ...]) -> IntArray:
        return np.array([position[name] for name in names], dtype=np.int64)

    if split.groups is not None:
        return OneGroup({group: positions(names) for group, names in split.groups.items()}, config)
    if split.graph is not None:
        eligible = split.graph.eligible(config.min_ways, config.max_leaves)
        if not eligible:
            raise BadInputError(
                f"no concept of the graph spans {config.min_ways} to {config.max_leaves} of the "
                f"{len(split.classes)} classes; lower min_ways, or sample without the graph"
            )
        return BelowOneConcept({node: positions(names) for node, names in eligible.items()}, config.max_ways)
    return AnyClasses(len(split.classes), config)
