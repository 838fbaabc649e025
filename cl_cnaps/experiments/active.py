"""Active learning: a model chooses the images that are labelled next; a curve for each acquisition strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from cl_cnaps.active.acquisition import Strategy, chosen_strategies
from cl_cnaps.active.learner import QUERY_SET
from cl_cnaps.active.plan import ActivePlan, DrawSampler, make_plan
from cl_cnaps.active.run import Draws, all_draws, run_units
from cl_cnaps.data import open_source
from cl_cnaps.data.feature_files import FeatureSource
from cl_cnaps.episodes import episodes_digest
from cl_cnaps.experiments.base import (
    Context,
    Experiment,
    Row,
    Summary,
    Unit,
    given_features,
    load,
    model_row,
)
from cl_cnaps.experiments.few_shot import check_refinement, provenance
from cl_cnaps.experiments.options import ActiveOptions
from cl_cnaps.features.frozen import constant_film
from cl_cnaps.few_shot.run import with_packed_images
from cl_cnaps.few_shot.targets import is_there, offline_words
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.metrics.curves import curve_figures
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.names import STRATEGIES
from cl_cnaps.records.record import record_name

DEFAULT_SOURCE = "cifar10"


@dataclass(frozen=True)
class ActiveExperiment(Experiment):
    """One model on the tasks of one source; a unit is a run of a task, with every strategy."""

    config: ActiveOptions
    plan: ActivePlan
    loaded: LoadedModel
    strategies: Mapping[str, Strategy]

    verb = "active"
    Config = ActiveOptions

    @classmethod
    def prepare(cls, config: ActiveOptions, *, download: bool = True, keep: Path | None = None) -> list[Self]:  # noqa: ARG003
        """Open the data and load the models: one experiment for adapted and one for frozen features."""
        check_refinement(config, "query_set")
        names = config.strategies if config.strategies not in (None, ("all",)) else tuple(STRATEGIES)
        strategies = chosen_strategies(names or ())
        name, fetch = config.source or _default_source(), download and config.source is not None
        source = open_source(name, download=fetch, features=True)
        given = {
            name: getattr(config, name) for name in ("initial", "per_round", "rounds", "runs", "pool", "test")
        }
        plan = make_plan(
            source, given=given, paper=config.paper, alphabets=config.alphabets, seed=config.seed
        )
        features = given_features([source])
        return [cls(config, plan, loaded, strategies) for loaded in _models(config, features)]

    @property
    def name(self) -> str:
        """Source and model."""
        return record_name(f"{self.plan.source}-{self.loaded.model.config.model}")

    @property
    def title(self) -> str:
        """Model and kind of features."""
        config = self.loaded.model.config
        return f"{config.model}, {'frozen' if config.adaptation == 'none' else 'adapted'} features"

    @property
    def preface(self) -> Sequence[str]:
        """Whether the default source is not there."""
        if self.config.source is not None or self.plan.source == DEFAULT_SOURCE:
            return []
        return [f"{offline_words('CIFAR-10', [self.plan.source])} --source {DEFAULT_SOURCE} fetches it."]

    @property
    def device_type(self) -> str:
        """Of the model."""
        return self.loaded.model.device.type

    @property
    def query_set(self) -> int:
        """Most images that are refined together."""
        return self.config.query_set or QUERY_SET

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides a number."""
        plan, loaded, model = self.plan, self.loaded, self.loaded.model.config
        return {
            "source": plan.source,
            "model": model.model,
            "backbone": model.backbone,
            "adaptation": model.adaptation,
            "strategies": list(self.strategies),
            "protocol": asdict(plan.protocol),
            "alphabets": [task.name for task in plan.tasks if task.name is not None],
            "query_set": self.query_set if model.refines else None,
            "seed": plan.seed,
            "classes": plan.tasks_of.chosen,
            "data_digest": plan.tasks_of.images.digest(),
            "backbone_digest": loaded.model.backbone.digest(),
            "weights_digest": loaded.weights_digest,
            "model_config": model.as_json(),
        }

    def units(self) -> list[Unit]:
        """Return every run of every task, the first run of all tasks first; a step is a round of a strategy."""
        rounds = len(self.strategies) * self.plan.protocol.rounds
        return [Unit(self._key(draws), rounds) for draws in all_draws(self.plan)]

    def _key(self, draws: Draws) -> str:
        return f"{self.plan.tasks[draws.task].name or self.plan.source}/run-{draws.run}"

    def run(self, units: Sequence[Unit], context: Context) -> Iterator[tuple[Unit, Any]]:
        """Yield the curves of each unit."""
        progress = context.progress
        by_key = {unit.key: unit for unit in units}
        left = [draws for draws in all_draws(self.plan) if self._key(draws) in by_key]
        model = self.loaded.model
        progress.show("reading images")
        images = with_packed_images(self.plan.tasks_of, model.backbone.info.image_size)
        with Workers(model, context.workers if left else 0) as pool:
            for curves in run_units(
                pool,
                self.plan,
                images,
                self.strategies,
                left,
                query_set=self.query_set,
                progress=lambda rounds: progress.show("rounds" if rounds else "embedding images", rounds),
            ):
                final = ", ".join(
                    f"{name} {100 * points[-1].accuracy:.1f} %" for name, points in curves.curves.items()
                )
                task = self.plan.tasks[curves.unit.task].name
                progress.show(final)
                progress.line(f"{task + ', ' if task else ''}run {curves.unit.run + 1}: {final}")
                yield by_key[self._key(curves.unit)], asdict(curves)

    def summarise(self, results: Sequence[Any]) -> Summary:
        """Compute areas, gains over random and labels needed, for each task and strategy."""
        rows: list[Row] = []
        for number in range(len(self.plan.tasks)):
            mine = sorted(
                (r for r in results if r["unit"]["task"] == number), key=lambda r: int(r["unit"]["run"])
            )
            rows += self._rows(number, mine)
        return Summary(
            rows=rows,
            tables={"curves": self._lines(results)},
            facts={"seconds": sum(result["seconds"] for result in results)},
            environment={
                "seed": self.plan.seed,
                **{key: self.identity[key] for key in ("data_digest", "weights_digest", "backbone_digest")},
                "device": str(self.loaded.model.device),
            },
        )

    def _rows(self, number: int, results: Sequence[Mapping[str, Any]]) -> list[Row]:
        plan, loaded, task = self.plan, self.loaded, self.plan.tasks[number]
        protocol = asdict(plan.protocol)
        sampler = DrawSampler(plan, task)
        episode = sampler.episode(0)
        labels = [point["labels"] for point in next(iter(results[0]["curves"].values()))]
        curves = {
            name: np.array([[point["accuracy"] for point in one["curves"][name]] for one in results])
            for name in results[0]["curves"]
        }
        constant = constant_film(loaded.model) is not None
        return [
            {
                "source": plan.source,
                "alphabet": task.name,
                **model_row(loaded.model.config),
                "features": "the same throughout" if constant else "adapted to the labels",
                "strategy": name,
                **figures,
                "classes": len(task.classes),
                **{key: protocol[key] for key in ("initial", "per_round", "rounds", "runs")},
                "pool": len(episode.support) - labels[0],
                "test": len(episode.query),
                "query_set": self.identity["query_set"],
                "temperature": float(loaded.model.temperature.detach()),
                "seed": plan.seed,
                "draws_digest": episodes_digest(sampler.episode(run) for run in range(plan.protocol.runs)),
                **provenance(plan.source, plan.tasks_of, loaded),
            }
            for name, figures in curve_figures(labels, curves).items()
        ]

    def _lines(self, results: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
        for one in sorted(results, key=lambda one: (one["unit"]["task"], one["unit"]["run"])):
            for strategy, points in one["curves"].items():
                for number, point in enumerate(points):
                    yield {
                        "run": one["unit"]["run"],
                        "source": self.plan.source,
                        "alphabet": self.plan.tasks[one["unit"]["task"]].name or "",
                        "strategy": strategy,
                        "point": number,
                        **point,
                    }


def _default_source() -> str:
    return DEFAULT_SOURCE if is_there(DEFAULT_SOURCE) else "mnist"


def _models(config: ActiveOptions, features: FeatureSource | None) -> list[LoadedModel]:
    """Load the models to run: adapted, frozen or both; of given features one."""
    if features is not None:
        return [load(config, None, features=features)]
    if config.adaptation in ("film", "none"):
        return [load(config, config.adaptation)]
    first = load(config, None if config.adaptation is None else "film")
    without_frozen = config.adaptation is None and first.model.config.variant == "plus"
    if first.model.config.adaptation == "none" or without_frozen:
        return [first]
    return [first, load(config, "none", modulation=None)]
