"""Streams: a CNAPS model or a baseline learns tasks one after another, and every task seen is scored after each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from cl_cnaps.continual.baselines import BASELINES, Inputs, make_baseline
from cl_cnaps.continual.baselines.learner import quiet_avalanche
from cl_cnaps.continual.baselines.settings import FirstSessionSettings
from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, open_sources, plan_stream
from cl_cnaps.continual.planning import read_class_order
from cl_cnaps.continual.stream import Head, Learner, RunResult, Stream, run_stream
from cl_cnaps.data import open_source
from cl_cnaps.data.feature_files import FeatureSource, given_features
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.base import Context, Experiment, Row, Summary, Unit, load, model_row
from cl_cnaps.experiments.options import SETTINGS, StreamOptions
from cl_cnaps.experiments.stream_models import each_model
from cl_cnaps.features.kept import FeatureStore, KeptBatches, SharedFeatures
from cl_cnaps.metrics.continual import accuracy_matrix, image_weighted, query_counts, summarise
from cl_cnaps.metrics.intervals import Array, estimate, interval95
from cl_cnaps.models.cnaps import MODELS, CnapsModel
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.names import ENCODINGS
from cl_cnaps.records.record import record_name


@dataclass(frozen=True)
class StreamExperiment(Experiment):
    """One model and encoding on one benchmark, with every head that is scored; a unit is a run with new images.

    Several models of one command take turns at each run: they share its images and features, and have a record each,
    which is that of the model alone.
    """

    config: StreamOptions
    plan: StreamPlan
    maker: LearnerMaker
    shared: SharedRun | None = None

    verb = "stream"
    Config = StreamOptions
    in_step = True

    @classmethod
    def prepare(cls, config: StreamOptions, *, download: bool = True, keep: Path | None = None) -> list[Self]:
        """Open the data and load the models; one experiment for each model and encoding."""
        configs = each_model(config)
        sizes: Any = config.classes_per_task
        plan = plan_stream(
            StreamConfig(
                config.benchmark,
                config.shots,  # type: ignore[arg-type]
                config.queries,
                sizes[0] if sizes is not None and len(sizes) == 1 else sizes,
                None if config.class_order is None else read_class_order(config.class_order),
                config.shuffle_classes,
                config.seed,
                config.base_classes,
                config.base_shots,  # type: ignore[arg-type]
                None if config.lists is None else Path(config.lists),
                config.repeat,
            ),
            *open_sources(config.benchmark, partial(open_source, download=download, features=True)),
        )
        one_each = [
            replace(one, encoding=encoding)
            for one in configs
            for encoding in (ENCODINGS if one.encoding == "all" else (one.encoding or "first",))
        ]
        features = given_features(plan.sources)
        if features is not None:
            one_each = [_of_features(one, keep, features) for one in one_each]
        if keep is not None and not any(map(_embeds, one_each)):
            raise BadInputError(
                f"--keep-features is for models that embed images; {one_each[0].model} on network does not"
            )
        shared = SharedRun(plan) if len(one_each) > 1 else None
        makers = Makers(keep, shared, features)
        return [cls(one, plan, makers.make(one), shared) for one in one_each]

    @property
    def name(self) -> str:
        """The benchmark."""
        return record_name(self.config.benchmark)

    @property
    def title(self) -> str:
        """Model and encoding."""
        return f"{self.config.model} {self.maker.settings['encoding'] or ''}".strip()

    @property
    def heads(self) -> tuple[Head, ...]:
        """The heads that are scored."""
        head = self.config.head
        return ("single", "multi") if head == "all" else (head,)  # type: ignore[return-value]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that decides a number."""
        config, plan, maker = self.config, self.plan, self.maker
        return {
            "model": config.model,
            "benchmark": config.benchmark,
            "heads": list(self.heads),
            "backbone": maker.backbone,
            "adaptation": maker.adaptation,
            "image_size": maker.image_size if plan.sources[0].feature_width is None else None,
            "shots": plan.shots,
            "queries": plan.queries,
            "runs": config.runs,
            "seed": config.seed,
            "tasks": [list(task.class_names) for task in plan.tasks],
            "data_digest": plan.digest(),
            **plan.details,
            "backbone_digest": maker.backbone_digest,
            "weights_digest": maker.weights_digest,
            **maker.settings,
        }

    def units(self) -> list[Unit]:
        """Return the runs."""
        return [Unit(f"run-{run}", len(self.plan.tasks)) for run in range(self.config.runs)]

    def run(self, units: Sequence[Unit], context: Context) -> Iterator[tuple[Unit, Any]]:
        """Yield the result of each run."""
        progress = context.progress
        for unit in units:
            run = int(unit.key.removeprefix("run-"))
            if self.shared is None:
                stream, saved = self.plan.stream(run, self.maker.image_size), 0.0
            else:
                stream, saved = self.shared.stream(run, self.maker.image_size), self.shared.features.saved
            start = time.perf_counter()
            learner = self.maker.learner(stream, run)  # baselines embed the support images here
            made = time.perf_counter() - start

            def step(number: int, means: Mapping[Head, float], run: int = run) -> None:
                scores = ", ".join(f"{head} {100 * mean:.1f} %" for head, mean in means.items())
                progress.show(scores, 1)
                if number == len(self.plan.tasks) - 1:
                    progress.line(f"run {run + 1} of {self.config.runs}: {scores}")

            result = run_stream(learner, stream, self.heads, run, step)
            seconds = result.seconds + made
            if self.shared is not None:  # as long as it takes alone
                seconds += self.shared.features.saved - saved
            yield unit, asdict(replace(result, seconds=seconds))

    def summarise(self, results: Sequence[Any]) -> Summary:
        """Compute the figures of every head."""
        runs = [RunResult(**result) for result in results]
        rows = [row for run in runs for row in run.rows]
        measures = [row for run in runs for row in run.measures]
        measured = {
            "protocol": self.plan.protocol,
            "batch": self.config.batch,
            "seconds": sum(run.seconds for run in runs),
            "memory_bytes": max(run.memory_bytes for run in runs),
            "data_source": self.plan.described_origin,
            "weights_source": self.maker.weights_source,
            "backbone_pretraining": self.maker.pretraining,
        }
        tables = {"accuracy": rows, "measures": measures, "confusion": self._confusion(runs)}
        digests = ("data_digest", "backbone_digest", "weights_digest")
        return Summary(
            rows=[
                {**stream_row(self.identity, rows, head, measures), **self.maker.row, **measured}
                for head in self.heads
            ],
            tables={name: table for name, table in tables.items() if table},
            facts={"tasks": [task.name for task in self.plan.tasks]},
            environment={
                "seeds": {"seed": self.config.seed, "shuffle_classes": self.config.shuffle_classes},
                **{key: self.identity[key] for key in digests},
            },
        )

    def _confusion(self, runs: Sequence[RunResult]) -> list[Row]:
        """How many queries of a class were given to which, after the last step of all runs together."""
        names = self.plan.class_names
        counts: Counter[tuple[str, int, int]] = Counter()
        for row in (row for run in runs for row in run.confusion):
            counts[row["head"], row["label"], row["predicted"]] += row["count"]
        return [
            {"head": head, "label": names[label], "predicted": names[given], "count": count}
            for (head, label, given), count in sorted(counts.items())
        ]


def stream_row(
    identity: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    head: Head,
    measures: Sequence[Mapping[str, Any]] = (),
) -> Row:
    """Return the figures of one head. Accuracies are fractions; `ci95` is half of the interval, None for one run."""
    accuracy = accuracy_matrix([dict(row) for row in rows], head)
    if len(accuracy) != identity["runs"]:
        raise BadInputError(f"{identity['runs']} runs are needed, the {head} head has {len(accuracy)}")
    n_queries = query_counts([dict(row) for row in rows])
    figures = summarise(accuracy, n_queries)
    for key in ("forward_transfer", "calibration_error", "negative_log_likelihood"):
        per_run = [row[key] for row in measures if row["head"] == head]
        known = bool(per_run) and None not in per_run
        figures[key] = estimate(np.array(per_run)) if known else None
    keys = ("model", "benchmark", "backbone", "adaptation", "shots", "queries", "runs")
    row: Row = {"encoding": identity["encoding"], "head": head, **{key: identity[key] for key in keys}}
    final = figures.pop("final_accuracy")
    assert final is not None
    row["final_accuracy"] = asdict(final)
    for key, figure in figures.items():
        row[key] = None if figure is None else figure.mean
        row[f"{key}_ci95"] = None if figure is None else figure.ci95
    row["accuracy_by_step"] = _each(image_weighted(accuracy, n_queries))
    row["final_accuracy_by_task"] = _each(accuracy[:, -1])
    return row


def _each(values_RT: Array) -> Row:
    """Mean and interval over runs of each step or task."""
    half = interval95(values_RT)
    return {"mean": values_RT.mean(axis=0).tolist(), "ci95": None if half is None else half.tolist()}


@dataclass(frozen=True)
class LearnerMaker:
    """Makes a learner for each run, and knows what it is made of."""

    learner: Callable[[Stream, int], Learner]
    image_size: int
    settings: Mapping[str, Any]
    """What of the identity only this kind of model has."""
    row: Row
    """What rows have of the model."""
    backbone: str
    weights_source: str
    weights_digest: str | None
    backbone_digest: str | None
    pretraining: str
    adaptation: str


class SharedRun:
    """What the models of one command share: the images of a run, and the features of these under each network."""

    def __init__(self, plan: StreamPlan) -> None:
        self.features = SharedFeatures()
        self._plan = plan
        self._streams: dict[tuple[int, int], Stream] = {}

    def stream(self, run: int, image_size: int) -> Stream:
        """Return the images of a run; those of other runs, and their features, are forgotten."""
        if any(kept != run for kept, _ in self._streams):
            self._streams.clear()
            self.features.clear()
        if (run, image_size) not in self._streams:
            self._streams[run, image_size] = self._plan.stream(run, image_size)
        return self._streams[run, image_size]


class Makers:
    """Loads models; all baselines on the same features have one network."""

    def __init__(self, keep: Path | None, shared: SharedRun | None, features: FeatureSource | None) -> None:
        self._keep = keep
        self._features = features
        self._shared = shared
        self._loaded: dict[str, LoadedModel] = {}

    def make(self, config: StreamOptions) -> LearnerMaker:
        """Load the model of a config with one model and encoding."""
        return self._cnaps(config) if config.model in MODELS else self._baseline(config)

    def _store(self, model: CnapsModel) -> FeatureStore | None:
        """Where features are found again: in memory for the models of this command, on disk for later ones."""
        kept = None if self._keep is None else KeptBatches.under(self._keep, model)
        return kept if self._shared is None else self._shared.features.before(kept)

    def _cnaps(self, config: StreamOptions) -> LearnerMaker:
        loaded = load(config, config.adaptation, features=self._features)
        model = loaded.model
        with quiet_avalanche():
            from cl_cnaps.continual.cnaps_learner import CnapsLearner

        def learner(stream: Stream, run: int) -> Learner:
            assert config.encoding is not None
            return CnapsLearner(
                stream,
                model,
                config.encoding,
                config.query_scope,  # type: ignore[arg-type]
                covariance,  # type: ignore[arg-type]
                store,
                memory_rank=config.memory_rank,
                shortlist=config.shortlist,
                batch=config.batch,
                seed=(config.seed * 1_000_003 + run) * len(stream.tasks),
            )

        store = self._store(model)
        covariance = config.covariance or "seen"
        settings: dict[str, Any] = {
            "encoding": config.encoding,
            "covariance": covariance,
            "model_config": model.config.as_json(),
        }
        for name in ("memory_rank", "shortlist", "batch"):
            if (number := getattr(config, name)) is not None:
                settings[name] = number
        if model.config.refines:
            settings["query_scope"] = config.query_scope
        return _made(loaded, learner, settings, model_row(model.config))

    def _baseline(self, config: StreamOptions) -> LearnerMaker:
        name = config.model_name
        info = BASELINES[name]
        on = _input(config)
        # Baselines see the same images at the same size, whether or not they use the backbone.
        adaptation = "film" if config.features == "adapted" else "none"
        if adaptation not in self._loaded:
            simple = replace(config, model="simple")
            self._loaded[adaptation] = load(simple, adaptation, features=self._features)
        loaded = self._loaded[adaptation]
        model = loaded.model
        with quiet_avalanche():
            import cl_cnaps.continual.baselines.network_learner
            import cl_cnaps.continual.baselines.statistics  # noqa: F401  # now, so that no run's seconds have it in them
            from cl_cnaps.continual.baselines.feature_strategy import cnaps_features, first_session_features

        def learner(stream: Stream, run: int) -> Learner:
            features = None
            seed = config.seed * 1_000_003 + run
            if on == "features":
                first = stream.tasks[0]
                make = (
                    first_session_features(model, info.defaults, seed, store)
                    if isinstance(info.defaults, FirstSessionSettings)
                    else cnaps_features(model, store)
                )
                features = make(first.support_images, first.support_labels)
            return make_baseline(
                name, stream, on=on, features=features, seed=seed, device=model.device, **online
            )

        store = self._store(model) if on == "features" else None
        online = {} if config.batch is None else {"epochs": 1, "batch_size": config.batch}
        settings = {"encoding": None, "baseline_on": on, "baseline": {**asdict(info.defaults), **online}}
        maker = _made(loaded, learner, settings, dict.fromkeys(SETTINGS))
        if on == "features":
            return maker
        return replace(
            maker,
            backbone="none",
            weights_source="none: trained on the stream",
            backbone_digest=None,
            pretraining="none",
        )


def _input(config: StreamOptions) -> Inputs:
    """What a baseline reads."""
    return config.baseline_on or BASELINES[config.model_name].inputs[0]  # type: ignore[return-value]


def _embeds(config: StreamOptions) -> bool:
    return config.model in MODELS or _input(config) == "features"


def _made(
    loaded: LoadedModel, learner: Callable[[Stream, int], Learner], settings: Mapping[str, Any], row: Row
) -> LearnerMaker:
    info = loaded.model.backbone.info
    return LearnerMaker(
        learner,
        info.image_size,
        settings,
        row,
        info.name,
        f"{loaded.weights_source}; backbone {info.name} from {info.weights_source}",
        loaded.weights_digest,
        loaded.model.backbone.digest(),
        info.pretraining,
        loaded.model.config.adaptation,
    )


def _of_features(config: StreamOptions, keep: Path | None, given: FeatureSource) -> StreamOptions:
    """Return a config for given features; what needs images is refused."""
    holds = f"{given.path} holds features"
    if keep is not None:
        raise BadInputError(f"--keep-features is for images; {holds} already")
    if config.features == "adapted":
        raise BadInputError(f"--features adapted needs images; {holds}, which no network changes any more")
    if config.model in MODELS:
        return config
    info = BASELINES[config.model_name]
    if config.baseline_on == "network" or "features" not in info.inputs:
        raise BadInputError(f"{config.model} on {_input(config)} needs images; {holds}")
    if isinstance(info.defaults, FirstSessionSettings):
        raise BadInputError(f"{config.model} tunes a network on images; {holds}")
    return replace(config, baseline_on="features")
