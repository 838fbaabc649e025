"""Every run of every task, by workers: the same curves for any number of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.active.acquisition import Strategy
from cl_cnaps.active.features import AdaptedFeatures, Annotator, Features, FrozenFeatures, Pictures, Scorer
from cl_cnaps.active.learner import QUERY_SET, Learner, Point, learning_curves, set_of_each
from cl_cnaps.active.plan import ActivePlan, Draw, DrawSampler
from cl_cnaps.data import Source
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.features.frozen import FeatureRows, constant_film, map_table
from cl_cnaps.few_shot.run import features_of_all
from cl_cnaps.few_shot.workers import Workers, tick
from cl_cnaps.models.cnaps import CnapsModel

_ROUND = 3
"""What a generator is for: apart from those that draw images."""


@dataclass(frozen=True)
class Draws:
    """One run of one task, with every strategy; both by number."""

    task: int
    run: int


@dataclass(frozen=True)
class Curves:
    """What came of a unit: strategy -> its points."""

    unit: Draws
    curves: dict[str, list[Point]]
    seconds: float


def all_draws(plan: ActivePlan) -> list[Draws]:
    """Return every run of every task, the first run of all tasks first."""
    return [Draws(task, run) for run in range(plan.protocol.runs) for task in range(len(plan.tasks))]


def run_units(
    workers: Workers,
    plan: ActivePlan,
    images: Source,
    strategies: Mapping[str, Strategy],
    units: Sequence[Draws],
    *,
    query_set: int = QUERY_SET,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Curves]:
    """The curves of these units in order; nothing but `seconds` depends on the number of workers.

    Features that do not depend on the task are embedded once for all runs, rounds and strategies. `progress` gets the
    rounds that were finished since, of any strategy; 0 while images are embedded.
    """
    if not units:
        return
    # Those of the whole plan even if some units are left out: in which company an image is embedded can change the last
    # digit of its features, and a run that was taken up again is to give the digits of one that was never left.
    samplers = [DrawSampler(plan, task) for task in plan.tasks]
    runs = plan.protocol.runs
    with features_of_all(workers, samplers, images, runs, lambda _: progress(0)) as (rows, file):
        yield from workers.each(RunUnit(plan, images, strategies, query_set, rows, file), units, progress)


@dataclass
class RunUnit:
    """Work: the curves of one run of one task."""

    plan: ActivePlan
    images: Source
    strategies: Mapping[str, Strategy]
    query_set: int
    rows: FeatureRows | None = None
    file: Path | None = None
    """Features embedded once, and which row is which image's."""
    _table: Tensor | None = field(default=None, repr=False)

    def __call__(self, model: CnapsModel, unit: Draws) -> Curves:
        """Run one unit."""
        start = time.perf_counter()
        task, protocol = self.plan.tasks[unit.task], self.plan.protocol
        draw = self.plan.draw(task, unit.run)
        episode, initial = draw.episode, draw.initial
        pool_sets = set_of_each(len(episode.support) - initial, self.query_set)
        learner = Learner(
            model,
            self._features(model, draw),
            episode.way,
            candidate_sets_S=np.concatenate([np.zeros(initial, dtype=np.int64), pool_sets]),
            test_sets_T=set_of_each(len(episode.query), self.query_set),
        )

        def generator(number: int) -> np.random.Generator:
            words = [self.plan.seed, unit.run, _ROUND, number, *(task.name or "").encode()]
            return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))

        curves = learning_curves(
            learner,
            Annotator(episode.support[:, 0]),
            Scorer(episode.query[:, 0]),
            initial=initial,
            strategies=self.strategies,
            rounds=protocol.rounds,
            per_round=protocol.per_round,
            generator=generator,
            progress=tick,
        )
        return Curves(unit, curves, time.perf_counter() - start)

    def _features(self, model: CnapsModel, draw: Draw) -> Features:
        episode = draw.episode
        if self.rows is not None and self.file is not None:
            return FrozenFeatures(
                *(self._looked_up(model, draw, rows) for rows in (episode.support, episode.query))
            )
        size = model.backbone.info.image_size
        candidates, tests = (
            Pictures(self.images, episode.class_names, rows, size)
            for rows in (episode.support, episode.query)
        )
        film = constant_film(model)
        if film is None:
            return AdaptedFeatures(model, candidates, tests)
        return FrozenFeatures.embedded(model, film, candidates, tests)

    def _looked_up(self, model: CnapsModel, draw: Draw, rows: IntArray) -> Tensor:
        assert self.rows is not None
        assert self.file is not None
        if self._table is None:
            self._table = map_table(self.file)
        numbers = torch.from_numpy(self.rows.of(draw.episode.class_names, rows))
        return self._table[numbers].to(model.device)
