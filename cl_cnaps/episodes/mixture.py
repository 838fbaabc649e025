"""Episodes of several sources mixed, for meta-training on all of them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cl_cnaps.episodes.episode import Episode
from cl_cnaps.episodes.randomness import Purpose, episode_generator
from cl_cnaps.episodes.samplers import EpisodeSampler
from cl_cnaps.errors import BadInputError


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
        name = self.source_of(index)
        return replace(self._samplers[name].episode(index), source=name)
