"""Few-shot evaluation: one model, or several ways to classify, on many tasks of each data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cl_cnaps.data.source import total
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments import Progress
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
from cl_cnaps.experiments.options import FewShotOptions, ModelOptions
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, seen_in_pretraining, seen_in_training
from cl_cnaps.few_shot.run import EpisodeScore, Outcome, run_methods, with_packed_images
from cl_cnaps.few_shot.targets import (
    OFFLINE,
    Target,
    TargetSet,
    TaskShape,
    default_targets,
    offline_words,
    plan,
    refinement_steps,
    task_shapes,
)
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.metrics.curves import recall_rows
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.names import refines
from cl_cnaps.records.record import config_digest, record_name


@dataclass(frozen=True)
class Method:
    """A way to classify: a row of an ablation, or the one model of an evaluation."""

    key: str
    loaded: LoadedModel
    """The model that makes the features; methods that share it share them."""
    config: CnapsConfig

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything about the method that decides a number."""
        return {
            "model_config": self.config.as_json(),
            "backbone_digest": self.loaded.model.backbone.digest(),
            "weights_digest": self.loaded.weights_digest,
        }


Cell = dict[str, Any]
"""A method on one data set and shape of tasks: its row, the accuracy of each task, class recall."""
Known = Mapping[str, Callable[[Row], Cell]]
"""Digest of all that decides a cell -> a function that makes it of what its row has before it is measured."""


@dataclass(frozen=True)
class _Piece:
    """A unit: the tasks of one data set, by the methods that share one model's features."""

    unit: Unit
    target: Target
    of: TargetSet
    methods: tuple[Method, ...]


class TaskExperiment(Experiment):
    """What few-shot evaluation and ablations have in common: methods x data sets x shapes of tasks."""

    config: Any
    targets: Sequence[Target]
    methods: Sequence[Method]
    keep: Path | None

    @property
    def device_type(self) -> str:
        """Of the first model."""
        return self.methods[0].loaded.model.device.type

    def units(self) -> list[Unit]:
        """Return a unit for each data set and each model that makes features."""
        return [piece.unit for piece in self._pieces]

    @cached_property
    def _pieces(self) -> list[_Piece]:
        pieces = []
        for group in _sharing(self.methods):
            for target in self.targets:
                for of in target.sets:
                    key = f"{of.name} {config_digest([method.identity for method in group])[:12]}"  # type: ignore[arg-type]
                    unit = Unit(key, self.config.tasks * len(target.shapes))
                    pieces.append(_Piece(unit, target, of, tuple(group)))
        return pieces

    def run(self, units: Sequence[Unit], context: Context) -> Iterator[tuple[Unit, Any]]:
        """Yield the cells of each unit; those that records under `out` have are not computed."""
        progress = context.progress
        keys, known = {unit.key for unit in units}, self.known(context.out)
        left = [piece for piece in self._pieces if piece.unit.key in keys]
        for group in _sharing(self.methods):
            with Workers(group[0].loaded.model, context.workers) as pool:
                for piece in left:
                    if piece.methods == tuple(group):
                        yield piece.unit, self._cells(piece, pool, known, progress)

    def _cells(self, piece: _Piece, pool: Workers, known: Known, progress: Progress) -> list[Cell]:
        """Return a cell for each method and shape: its row, its tasks and its class recall."""
        shapes = piece.target.shapes
        cells = {}
        for method in piece.methods:
            for number, shape in enumerate(shapes):
                about = self._about(piece, method, shape)
                if about["cell"] in known:
                    cells[method.key, number] = known[about["cell"]](about)
        left = [m for m in piece.methods if any((m.key, n) not in cells for n in range(len(shapes)))]
        if left:
            cells = {**self._measured(piece, left, pool, progress), **cells}
        else:
            progress.show(piece.of.title, piece.unit.steps)
        return [cells[method.key, number] for method in piece.methods for number in range(len(shapes))]

    def _measured(
        self, piece: _Piece, methods: Sequence[Method], pool: Workers, progress: Progress
    ) -> dict[tuple[str, int], Cell]:
        of, tasks, seed = piece.of, self.config.tasks, self.config.seed
        size = pool.model.backbone.info.image_size
        progress.show(f"{of.title}: reading {total(of.tasks_of.images):,} images")
        images = with_packed_images(of.tasks_of, size)
        accuracies: list[float] = []

        def scored(scores: Sequence[EpisodeScore]) -> None:
            accuracies.extend(score.accuracy for score in scores)
            mean = f"{100 * sum(accuracies) / len(accuracies):.1f} %" if accuracies else "embedding images"
            progress.show(f"{of.title}: {mean}", len(scores))

        every = run_methods(
            pool,
            [method.config for method in methods],
            of.tasks_of,
            images,
            piece.target.shapes,
            tasks=tasks,
            seed=seed,
            progress=scored,
            keep=self.keep,
        )
        cells = {}
        for number, outcomes in enumerate(every):
            for method, outcome in zip(methods, outcomes, strict=True):
                cells[method.key, number] = self._cell(piece, method, outcome)
        progress.line(f"{of.title}: {100 * sum(accuracies) / len(accuracies):.1f} %")
        return cells

    def _cell(self, piece: _Piece, method: Method, outcome: Outcome) -> Cell:
        scores = outcome.scores
        classes = [one for task in scores for one in zip(task.shots, task.queries, task.correct, strict=True)]
        row = {
            **self._about(piece, method, outcome.shape),
            "features": "the same for all tasks" if outcome.embedded_once else "adapted to each task",
            "tasks": len(scores),
            "accuracy": asdict(outcome.accuracy),
            "mean_ways": len(classes) / len(scores),
            "mean_shots": sum(shots for shots, _, _ in classes) / len(classes),
            "episodes_digest": outcome.episodes_digest,
            "seconds": outcome.seconds,
        }
        tasks = {key: row[key] for key in ("data_set", "shape", "queries")}
        return {
            "row": row,
            "episodes": [{**tasks, **_task(one)} for one in scores],
            "recall": [{**tasks, **one} for one in recall_rows(classes)],
            "reused": None,
        }

    def _about(self, piece: _Piece, method: Method, shape: TaskShape) -> Row:
        """Return what a row has before anything is measured; `cell` is a digest of all that decides its numbers."""
        of, loaded = piece.of, method.loaded
        data = {"classes": of.tasks_of.chosen, "digest": of.tasks_of.images.digest()}
        numbers = {"tasks": self.config.tasks, "seed": self.config.seed, "shape": asdict(shape), "data": data}
        return {
            "target": piece.target.name,
            "data_set": of.name,
            "title": of.title,
            "domain": of.domain,
            "stand_in": of.stand_in,
            **model_row(method.config),
            "ways": shape.ways,
            "shots": shape.shots,
            "queries": shape.queries,
            "shape": shape.words,
            "seed": self.config.seed,
            "data_digest": data["digest"],
            **provenance(of.stand_in or of.name, of.tasks_of, loaded),
            "cell": config_digest({**method.identity, **numbers})[:16],
        }

    def known(self, out: Path) -> Known:  # noqa: ARG002
        """Return the cells that records under `out` have measured; an evaluation takes none."""
        return {}

    @property
    def task_identity(self) -> dict[str, Any]:
        """Everything about the tasks that decides a number."""
        return {
            "tasks": self.config.tasks,
            "seed": self.config.seed,
            "targets": [
                {
                    "target": target.name,
                    "shapes": [asdict(shape) for shape in target.shapes],
                    "data_sets": {
                        one.name: {"classes": one.tasks_of.chosen, "digest": one.tasks_of.images.digest()}
                        for one in target.sets
                    },
                }
                for target in self.targets
            ],
        }

    @property
    def facts(self) -> dict[str, Any]:
        """What a summary has beside its rows: the data sets that are not there."""
        return {"missing": [asdict(one) for target in self.targets for one in target.missing]}

    @property
    def task_environment(self) -> dict[str, Any]:
        """Seeds and digests."""
        return {
            "seed": self.config.seed,
            "data_digests": {one.name: one.tasks_of.images.digest() for t in self.targets for one in t.sets},
            "weights_digests": {method.key: method.loaded.weights_digest for method in self.methods},
            "backbone_digest": self.methods[0].loaded.model.backbone.digest(),
            "device": str(self.methods[0].loaded.model.device),
        }


@dataclass(frozen=True)
class FewShotExperiment(TaskExperiment):
    """One model on the data sets of a target."""

    config: FewShotOptions
    targets: Sequence[Target]
    methods: Sequence[Method]
    keep: Path | None = None

    verb = "evaluate"
    Config = FewShotOptions

    @classmethod
    def prepare(
        cls, config: FewShotOptions, *, download: bool = True, keep: Path | None = None
    ) -> list[Self]:
        """Open the data sets and load the model; without a target, of what is there."""
        check_refinement(config)
        names = (config.target,) if config.target else default_targets()
        return [cls._of(name, config, download, keep) for name in names]

    @classmethod
    def _of(cls, name: str, config: FewShotOptions, download: bool, keep: Path | None) -> Self:
        shapes = task_shapes(
            name,
            ways=config.ways or (),
            shots=config.shots or (),
            queries=config.queries,
            variable=config.variable,
            vary_queries=config.vary_queries or (),
        )
        target = plan(name, shapes, specs=config.specs, download=download, features=True)
        features = given_features([one.tasks_of.images.source for one in target.sets])
        if features is not None and keep is not None:
            raise BadInputError(f"--keep-features is for images; {features.path} holds features already")
        loaded = load(config, config.adaptation, refinement_steps(name), features=features)
        return cls(config, (target,), (Method(config.model_name, loaded, loaded.model.config),), keep)

    @property
    def preface(self) -> Sequence[str]:
        """Which data sets are not there."""
        target = self.targets[0]
        if self.config.target is None and target.name in OFFLINE:
            return [offline_words("data set of Meta-Dataset", OFFLINE)]
        return [target.preface] if target.preface else []

    @property
    def name(self) -> str:
        """Target and model, then the variant and the metric that are not the model's own."""
        model = self.methods[0].config
        variant = () if model.variant == "plain" else (model.variant,)
        metric = () if model.metric == "mahalanobis" or model.model == "protonet" else (model.metric,)
        return record_name("-".join((self.targets[0].name, model.model, *variant, *metric)))

    @property
    def title(self) -> str:
        """Model and target."""
        return f"{self.methods[0].config.model}, {self.targets[0].name}"

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Everything that decides a number."""
        model = self.methods[0].config
        return {
            "target": self.targets[0].name,
            "model": model.model,
            "backbone": model.backbone,
            "adaptation": model.adaptation,
            **self.methods[0].identity,
            **self.task_identity,
        }

    def summarise(self, results: Sequence[Any]) -> Summary:
        """Gather the cells of all data sets."""
        cells = [cell for result in results for cell in result]
        return Summary(
            rows=[cell["row"] for cell in cells],
            tables={name: [row for cell in cells for row in cell[name]] for name in ("episodes", "recall")},
            facts=self.facts,
            environment=self.task_environment,
        )


def provenance(name: str, tasks_of: EvaluationSet, loaded: LoadedModel) -> Row:
    """Return what a row has of its images and weights: which classes, where from, what the model has seen of them."""
    pretraining = loaded.model.backbone.info.pretraining
    overlap = seen_in_pretraining(name, pretraining)
    trained = seen_in_training(name, tasks_of, loaded.trained_on)
    return {
        "test_classes": tasks_of.chosen,
        "data_source": tasks_of.images.origin,
        "weights_source": loaded.weights_source,
        "backbone_pretraining": pretraining,
        "seen_in_pretraining": overlap.words,
        "classes_seen_in_pretraining": overlap.seen,
        "seen_in_training": trained.words,
        "classes_seen_in_training": trained.seen,
    }


def check_refinement(config: ModelOptions, *more: str) -> None:
    """Refuse options of the refinement, and `more`, for a model that does not refine."""
    if refines(config.model_name, config.variant):
        return
    for name in (*more, "responsibilities", "refine_min", "refine_max"):
        if getattr(config, name) is not None:
            raise BadInputError(
                f"--{name.replace('_', '-')} is for models that refine, not for {config.variant or config.model_name}"
            )


def _sharing(methods: Sequence[Method]) -> list[list[Method]]:
    """Group methods by the model that makes their features."""
    groups: dict[int, list[Method]] = {}
    for method in methods:
        groups.setdefault(id(method.loaded), []).append(method)
    return list(groups.values())


def _task(score: EpisodeScore) -> Row:
    return {
        "episode": score.index,
        "ways": score.way,
        "support_images": sum(score.shots),
        "query_images": sum(score.queries),
        "accuracy": score.accuracy,
    }
