"""How large an episode is and which classes it has: Meta-Dataset's rules.

They are those of the official sampler (Triantafillou et al., "Meta-Dataset", 2020), arranged so that rounding
cannot break a bound. Each arrangement is the same number in exact arithmetic:

- floor(u * c + 1) is computed as floor(u * c) + 1. For u just below 1 the sum u * c + 1 can round to c + 1,
  one image more than the class may give; the product alone always stays below c.
- floor(weight * r), weight = w_k / sum(w), is computed as floor(w_k * r / sum(w)). Normalising first rounds
  twice: with 49 equal weights and r = 49 it gives 49 * (1/49) = 0.99..., hence 0 instead of 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.spec import SplitSpec
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class MetaDatasetConfig:
    """Bounds of episodes with variable way and shot; the defaults are Meta-Dataset's."""

    min_ways: int = 5
    max_ways: int = 50
    max_queries: int = 10
    """Query images of each class, at most; never more than half of the smallest class."""
    max_support: int = 500
    """Support images of the whole episode, at most."""
    max_contribution: int = 100
    """What one class adds to the support size, at most; its shots may still be more than this."""
    min_weight: float = 0.5
    max_weight: float = 2.0
    """Shots follow class size times a factor drawn log-uniformly between these two."""
    max_leaves: int = 392
    """A concept that spans more classes is not picked; one that spans fewer than `min_ways` is not either."""

    def __post_init__(self) -> None:
        if not 2 <= self.min_ways <= self.max_ways:
            raise BadInputError(f"ways {self.min_ways}..{self.max_ways}: 2 <= min_ways <= max_ways is needed")
        for name in ("max_queries", "max_contribution"):
            if getattr(self, name) < 1:
                raise BadInputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.max_support < self.max_ways:
            raise BadInputError(
                f"max_support is {self.max_support}: less than one image for each of {self.max_ways} classes "
                "(max_ways); raise it or lower max_ways"
            )
        if not 0 < self.min_weight <= self.max_weight < math.inf:
            raise BadInputError(f"weights {self.min_weight}..{self.max_weight}: 0 < min <= max is needed")
        if self.max_leaves < self.min_ways:
            raise BadInputError(f"max_leaves is {self.max_leaves}, less than min_ways {self.min_ways}")


def draw_ways(classes: int, config: MetaDatasetConfig, rng: Generator) -> int:
    """Uniform on {min_ways .. min(max_ways, classes)}."""
    return int(rng.integers(config.min_ways, min(config.max_ways, classes), endpoint=True))


def queries_per_class(sizes: IntArray, config: MetaDatasetConfig) -> int:
    """min(max_queries, floor(smallest class / 2)): the same for all classes of the episode."""
    return min(config.max_queries, int(sizes.min()) // 2)


def support_size(sizes: IntArray, queries: int, u: float, config: MetaDatasetConfig) -> int:
    """min(max_support, sum over classes of floor(u * min(max_contribution, size - queries) + 1)), u < 1."""
    contributions = np.minimum(config.max_contribution, sizes - queries)
    return min(config.max_support, int((np.floor(u * contributions).astype(np.int64) + 1).sum()))


def shots_per_class(
    sizes: IntArray, queries: int, support: int, factors: npt.NDArray[np.float64]
) -> IntArray:
    """floor(weight * (support - ways)) + 1, at most size - queries; weights are size * factor, normalised."""
    weights = sizes * factors
    desired = np.floor(weights * (support - len(sizes)) / weights.sum()).astype(np.int64) + 1
    shots: IntArray = np.minimum(desired, sizes - queries)
    return shots


def draw_shots(sizes: IntArray, config: MetaDatasetConfig, rng: Generator) -> tuple[IntArray, int]:
    """Shots of each class and queries per class, for classes of these sizes (each at least 2)."""
    queries = queries_per_class(sizes, config)
    support = support_size(sizes, queries, rng.random(), config)
    factors = np.exp(rng.uniform(math.log(config.min_weight), math.log(config.max_weight), size=len(sizes)))
    return shots_per_class(sizes, queries, support, factors), queries


class ClassPicker(Protocol):
    """Draws the classes of one episode."""

    def pick(self, rng: Generator) -> IntArray:
        """Positions in the class table, distinct, in way order."""


@dataclass(frozen=True)
class AnyClasses:
    """Ways uniformly, then that many of all classes without replacement."""

    count: int
    config: MetaDatasetConfig

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
    config: MetaDatasetConfig

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
