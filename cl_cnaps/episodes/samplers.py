"""Samplers: `sampler.episode(i)` is a function of the classes, the seed and i, whatever was drawn before."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.random import Generator

from cl_cnaps.episodes.episode import Episode, IntArray, Purpose, episode_generator
from cl_cnaps.episodes.rules import MetaDatasetConfig, class_picker, draw_shots
from cl_cnaps.episodes.spec import ClassTable, SplitSpec
from cl_cnaps.errors import BadInputError


class EpisodeSampler(Protocol):
    """An endless numbered sequence of episodes."""

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""


class _TableSampler:
    """What samplers over one class table share: the generator, and drawing images of chosen classes."""

    def __init__(self, source: str, classes: ClassTable, seed: int, min_images: int, reason: str) -> None:
        for name, size in zip(classes.names, classes.sizes, strict=True):
            if size < min_images:
                raise BadInputError(
                    f"{source}: class {name!r} has {size} images; {min_images} are needed ({reason}). "
                    "Add images or leave the class out"
                )
        self.source = source
        self.classes = classes
        self.seed = seed
        self._sizes = np.array(classes.sizes, dtype=np.int64)
        # Taken from the content, so that data sets sampled with one seed get unrelated draws and a data set's
        # episodes do not depend on what it is called.
        content = repr((classes.names, classes.sizes)).encode()
        self._stream = int.from_bytes(hashlib.sha256(content).digest()[:4], "little")

    def _generator(self, index: int) -> Generator:
        return episode_generator(self.seed, index, Purpose.EPISODE, self._stream)

    def _describe(
        self, index: int, chosen: IntArray, shots: IntArray, queries: int, rng: Generator
    ) -> Episode:
        # From the whole class, never from a buffer of records in file order: neighbours in a file may be
        # near-copies (traffic signs: frames of one film), and copies in both sets inflate accuracy.
        drawn = [
            rng.choice(size, shot + queries, replace=False)
            for size, shot in zip(self._sizes[chosen].tolist(), shots.tolist(), strict=True)
        ]
        support = np.concatenate([images[:shot] for images, shot in zip(drawn, shots, strict=True)])
        query = np.concatenate([images[shot:] for images, shot in zip(drawn, shots, strict=True)])
        positions = np.arange(len(chosen))
        return Episode(
            source=self.source,
            class_names=tuple(self.classes.names[k] for k in chosen),
            support=np.stack([positions.repeat(shots), support], axis=1),
            query=np.stack([positions.repeat(queries), query], axis=1),
            seed=self.seed,
            index=index,
        )


@dataclass(frozen=True)
class FixedConfig:
    """Episodes of one shape; the defaults are those of the paper's mini- and tiered-ImageNet tables."""

    ways: int = 5
    shots: int = 1
    queries: int = 10

    def __post_init__(self) -> None:
        if self.ways < 2 or self.shots < 1 or self.queries < 1:
            raise BadInputError(
                f"{self.ways} ways, {self.shots} shots, {self.queries} queries: at least 2, 1, 1 are needed"
            )


class FixedSampler(_TableSampler):
    """The same number of classes, shots and queries in every episode."""

    def __init__(
        self,
        source: str,
        classes: ClassTable | Mapping[str, int],
        *,
        seed: int,
        config: FixedConfig | None = None,
    ) -> None:
        self.config = config or FixedConfig()
        table = classes if isinstance(classes, ClassTable) else ClassTable.of(classes)
        if len(table) < self.config.ways:
            raise BadInputError(f"{source}: has {len(table)} classes; tasks have {self.config.ways} ways")
        reason = f"{self.config.shots} shots and {self.config.queries} queries are needed"
        super().__init__(source, table, seed, self.config.shots + self.config.queries, reason)

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""
        rng = self._generator(index)
        chosen = rng.choice(len(self.classes), self.config.ways, replace=False)
        shots = np.full(self.config.ways, self.config.shots, dtype=np.int64)
        return self._describe(index, chosen, shots, self.config.queries, rng)


class MetaDatasetSampler(_TableSampler):
    """Variable way and shot by Meta-Dataset's rules (Triantafillou et al., 2020), for the classes of one split.

    How they are related decides how classes are chosen: of all, of one Omniglot alphabet, or below one ILSVRC concept.
    """

    def __init__(
        self, source: str, split: SplitSpec, *, seed: int, config: MetaDatasetConfig | None = None
    ) -> None:
        self.config = config or MetaDatasetConfig()
        if not len(split.classes):
            raise BadInputError(f"{source}: has no classes to draw tasks from")
        super().__init__(source, split.classes, seed, 2, "one for support, one for query")
        try:
            self._picker = class_picker(split, self.config)
        except BadInputError as error:
            raise BadInputError(f"{source}: {error}") from None

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""
        rng = self._generator(index)
        chosen = self._picker.pick(rng)
        shots, queries = draw_shots(self._sizes[chosen], self.config, rng)
        return self._describe(index, chosen, shots, queries, rng)


class MixtureSampler:
    """Episode i comes from a source drawn from (seed, i) in proportion to the weights (by default equal).

    It is that source's own episode i, so it can be had again from the source alone; its `source` is the name
    used here. Names are taken in sorted order: how the mapping was built does not matter.
    """

    def __init__(
        self, samplers: Mapping[str, EpisodeSampler], weights: Mapping[str, float] | None = None, *, seed: int
    ) -> None:
        if not samplers:
            raise BadInputError("a mixture needs at least one sampler")
        weights = dict.fromkeys(samplers, 1.0) if weights is None else weights
        if set(weights) != set(samplers):
            odd = sorted(set(weights) ^ set(samplers))
            raise BadInputError(f"weights and samplers must have the same names; only one of them has {odd}")
        for name, weight in weights.items():
            if not 0 < weight < math.inf:
                raise BadInputError(
                    f"the weight of {name!r} is {weight}; leave out what is not to be mixed in"
                )
        self.names = tuple(sorted(samplers))
        self.seed = seed
        self._samplers = dict(samplers)
        self._bounds = np.cumsum([weights[name] for name in self.names])

    def source_of(self, index: int) -> str:
        """The name of the source of episode `index`."""
        drawn = episode_generator(self.seed, index, Purpose.MIXTURE).random() * self._bounds[-1]
        # The product may round up to the total itself, which is past the last source.
        return self.names[min(int(np.searchsorted(self._bounds, drawn, side="right")), len(self.names) - 1)]

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""
        return self._of(self.source_of(index), index)

    def companion(self, index: int, share: float) -> Episode | None:
        """Return, for a share of the episodes, the episode of the same number of another source; None for the others.

        Which episodes, and which source of equally likely ones, is drawn from (seed, index).
        """
        others = [name for name in self.names if name != self.source_of(index)]
        rng = episode_generator(self.seed, index, Purpose.COMPANION)
        if rng.random() >= share or not others:
            return None
        return self._of(others[int(rng.integers(len(others)))], index)

    def _of(self, name: str, index: int) -> Episode:
        return replace(self._samplers[name].episode(index), source=name)
