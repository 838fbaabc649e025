"""The shape of tasks, and samplers of tasks of that shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cl_cnaps.episodes import (
    DatasetSpec,
    Episode,
    EpisodeSampler,
    FixedConfig,
    FixedSampler,
    MetaDatasetConfig,
    MetaDatasetSampler,
)
from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet


@dataclass(frozen=True)
class TaskShape:
    """Fixed ways and shots, or both None for Meta-Dataset's variable ones."""

    ways: int | None
    shots: int | None
    queries: int = 10
    """Query images of each class; of variable tasks at most."""
    drawn_queries: int | None = None
    """If tasks are drawn with more queries, of which the first `queries` are used: tasks that differ in this
    number alone then share classes, support and the queries they have in common."""

    def __post_init__(self) -> None:
        if (self.ways is None) != (self.shots is None):
            raise BadInputError("ways and shots are both fixed, or both variable")
        if self.drawn_queries is not None and self.drawn_queries < self.queries:
            raise BadInputError(f"{self.queries} queries cannot be used of {self.drawn_queries} drawn")

    @property
    def variable(self) -> bool:
        """Whether ways and shots differ from task to task."""
        return self.ways is None

    @property
    def words(self) -> str:
        """`5-way 1-shot`, or `variable`."""
        return "variable" if self.variable else f"{self.ways}-way {self.shots}-shot"


class FirstQueries:
    """Another sampler's tasks with the first so many query images of each class."""

    def __init__(self, sampler: EpisodeSampler, queries: int) -> None:
        self.sampler = sampler
        self.queries = queries

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""
        episode = self.sampler.episode(index)
        # Rows are grouped by class, so a row's place in its class is its distance from the class's first.
        starts = np.concatenate([[0], np.cumsum(episode.queries)[:-1]])
        place = np.arange(len(episode.query)) - starts[episode.query[:, 0]]
        return replace(episode, query=episode.query[place < self.queries])


def make_sampler(tasks_of: EvaluationSet, shape: TaskShape, seed: int) -> EpisodeSampler:
    """Tasks of this shape: episode i is a function of the classes, the seed and i."""
    drawn = shape.drawn_queries or shape.queries
    sampler: EpisodeSampler
    if shape.ways is None or shape.shots is None:
        spec = DatasetSpec(tasks_of.name, {"TEST": tasks_of.classes})
        sampler = MetaDatasetSampler(spec, "TEST", seed=seed, config=MetaDatasetConfig(max_queries=drawn))
    else:
        config = FixedConfig(shape.ways, shape.shots, drawn)
        sampler = FixedSampler(tasks_of.name, tasks_of.classes.classes, seed=seed, config=config)
    return sampler if drawn == shape.queries else FirstQueries(sampler, shape.queries)
