"""Streams: a CNAPS model or a baseline learns tasks one after another, and every task seen is scored after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from cl_cnaps.continual.baselines import BASELINES, make_baseline
from cl_cnaps.continual.baselines.closed_form_settings import FirstSessionSettings
from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, open_sources, plan_stream
from cl_cnaps.continual.class_order import read_class_order
from cl_cnaps.continual.protocol import RunResult, run_stream
from cl_cnaps.continual.stream import Head, Learner, Stream
from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.base import Context, Experiment, Row, Summary, Unit, load, model_row
from cl_cnaps.experiments.options import SETTINGS, StreamOptions
from cl_cnaps.features.kept import KeptBatches
from cl_cnaps.metrics.continual import accuracy_matrix, summarise
from cl_cnaps.models.cnaps import MODELS, CnapsModel
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.names import ENCODINGS, refines
from cl_cnaps.records.record import record_name


@dataclass(frozen=True)
class StreamExperiment(Experiment):
    """One model and encoding on one benchmark, with every head that is scored; a unit is a run with new images."""

    config: StreamOptions
    plan: StreamPlan
    maker: LearnerMaker

    verb = "stream"
    Config = StreamOptions

    @classmethod
    def prepare(cls, config: StreamOptions, *, download: bool = True, keep: Path | None = None) -> list[Self]:
        """Open the data and load the model; one experiment for each encoding."""
        _check(config)
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
            *open_sources(config.benchmark, partial(open_source, download=download)),
        )
        every = ENCODINGS if config.encoding == "all" else (config.encoding or "first",)
        one_each = [replace(config, encoding=encoding, model=config.model_name) for encoding in every]
        return [cls(one, plan, _maker(one, keep)) for one in one_each]

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
            "image_size": maker.image_size,
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
            stream = self.plan.stream(run, self.maker.image_size)
            start = time.perf_counter()
            learner = self.maker.learner(stream, run)  # baselines embed the support images here
            made = time.perf_counter() - start

            def step(number: int, means: Mapping[Head, float], run: int = run) -> None:
                scores = ", ".join(f"{head} {100 * mean:.1f} %" for head, mean in means.items())
                progress.show(scores, 1)
                if number == len(self.plan.tasks) - 1:
                    progress.line(f"run {run + 1} of {self.config.runs}: {scores}")

            result = run_stream(learner, stream, self.heads, run, step)
            yield unit, asdict(replace(result, seconds=result.seconds + made))

    def summarise(self, results: Sequence[Any]) -> Summary:
        """Compute final accuracy, forgetting, transfer and incremental accuracy of every head."""
        runs = [RunResult(**result) for result in results]
        rows = [row for run in runs for row in run.rows]
        measured = {
            "seconds": sum(run.seconds for run in runs),
            "memory_bytes": max(run.memory_bytes for run in runs),
            "data_source": self.plan.described_origin,
            "weights_source": self.maker.weights_source,
            "backbone_pretraining": self.maker.pretraining,
        }
        digests = ("data_digest", "backbone_digest", "weights_digest")
        return Summary(
            rows=[
                {**stream_row(self.identity, rows, head), **self.maker.row, **measured} for head in self.heads
            ],
            tables={"accuracy": rows},
            facts={"tasks": [task.name for task in self.plan.tasks]},
            environment={
                "seeds": {"seed": self.config.seed, "shuffle_classes": self.config.shuffle_classes},
                **{key: self.identity[key] for key in digests},
            },
        )


def stream_row(identity: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], head: Head) -> Row:
    """Return the figures of one head. Accuracies are fractions; `ci95` is half of the interval, None for one run."""
    accuracy = accuracy_matrix([dict(row) for row in rows], head)
    if len(accuracy) != identity["runs"]:
        raise BadInputError(f"{identity['runs']} runs are needed, the {head} head has {len(accuracy)}")
    figures = summarise(accuracy)
    keys = ("model", "benchmark", "backbone", "adaptation", "shots", "queries", "runs")
    row: Row = {"encoding": identity["encoding"], "head": head, **{key: identity[key] for key in keys}}
    row["final_accuracy"] = asdict(figures.final_accuracy)
    for key in ("forgetting", "backward_transfer", "average_incremental_accuracy"):
        figure = getattr(figures, key)
        row[key] = None if figure is None else figure.mean
        row[f"{key}_ci95"] = None if figure is None else figure.ci95
    return row


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


def _maker(config: StreamOptions, keep: Path | None) -> LearnerMaker:
    """Load the model; features are kept in the folder `keep`, if any."""
    return _cnaps(config, keep) if config.model in MODELS else _baseline(config, keep)


def _cnaps(config: StreamOptions, keep: Path | None) -> LearnerMaker:
    loaded = load(config, config.adaptation)
    model = loaded.model
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    def learner(stream: Stream, _run: int) -> Learner:
        assert config.encoding is not None
        return CnapsLearner(
            stream,
            model,
            config.encoding,
            config.query_scope,  # type: ignore[arg-type]
            covariance,  # type: ignore[arg-type]
            _kept(keep, model),
            memory_rank=config.memory_rank,
            shortlist=config.shortlist,
        )

    covariance = config.covariance or "seen"
    settings: dict[str, Any] = {
        "encoding": config.encoding,
        "covariance": covariance,
        "model_config": model.config.as_json(),
    }
    for name in ("memory_rank", "shortlist"):
        if (number := getattr(config, name)) is not None:
            settings[name] = number
    if model.config.refines:
        settings["query_scope"] = config.query_scope
    return _made(loaded, learner, settings, model_row(model.config))


def _kept(keep: Path | None, model: CnapsModel) -> KeptBatches | None:
    return None if keep is None else KeptBatches.under(keep, model)


def _baseline(config: StreamOptions, keep: Path | None) -> LearnerMaker:
    assert config.model is not None
    info = BASELINES[config.model]
    on: Any = config.baseline_on or info.inputs[0]
    if keep is not None and on != "features":
        raise BadInputError(
            f"--keep-features is for models that embed images; {config.model} on {on} does not"
        )
    # Baselines see the same images at the same size, whether or not they use the backbone.
    loaded = load(replace(config, model="simple"), "film" if config.features == "adapted" else "none")
    model, name = loaded.model, config.model
    with quiet_avalanche():
        import cl_cnaps.continual.baselines.build  # noqa: F401  # now, so that no run's seconds have it in them
        from cl_cnaps.continual.baselines.features import cnaps_features, first_session_features

    def learner(stream: Stream, run: int) -> Learner:
        features = None
        seed = config.seed * 1_000_003 + run
        if on == "features":
            kept, first = _kept(keep, model), stream.tasks[0]
            make = (
                first_session_features(model, info.defaults, seed, kept)
                if isinstance(info.defaults, FirstSessionSettings)
                else cnaps_features(model, kept)
            )
            features = make(first.support_images, first.support_labels)
        return make_baseline(name, stream, on=on, features=features, seed=seed, device=model.device)

    settings = {"encoding": None, "baseline_on": on, "baseline": asdict(info.defaults)}
    row = dict.fromkeys(SETTINGS)
    maker = _made(loaded, learner, settings, row)
    if on == "features":
        return maker
    return replace(
        maker,
        backbone="none",
        weights_source="none: trained on the stream",
        backbone_digest=None,
        pretraining="none",
    )


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


def _check(config: StreamOptions) -> None:
    """Refuse options that would have no effect."""
    name = config.model_name
    if name not in MODELS and name not in BASELINES:
        raise BadInputError(f"unknown model {name!r}; there are {', '.join([*MODELS, *BASELINES])}")
    if name in MODELS and config.baseline_on is not None:
        raise BadInputError(f"--baseline-on is for baselines; {name} always works on its adapted features")
    if name in MODELS and config.features is not None:
        raise BadInputError(f"--features is for baselines; for {name} it is --adaptation film or none")
    if name in BASELINES:
        if config.encoding is not None:
            raise BadInputError(f"--encoding is for CNAPS models; the baseline {name} has no task encoding")
        if config.covariance is not None:
            raise BadInputError(f"--covariance is for CNAPS models; the baseline {name} has its own")
        if (config.memory_rank, config.shortlist) != (None, None):
            raise BadInputError(
                f"--memory-rank and --shortlist are for CNAPS models, not for the baseline {name}"
            )
        if config.weights is not None and config.features != "adapted":
            raise BadInputError(
                f"--weights adapt features; the baseline {name} uses them with --features adapted"
            )
        if config.features is not None and "network" in (config.baseline_on, BASELINES[name].inputs[0]):
            raise BadInputError(f"--features is for baselines on features; {name} here trains on images")
        if config.adaptation == "film":
            raise BadInputError(
                f"--adaptation film is for CNAPS models; for the baseline {name} it is --features adapted"
            )
        if config.baseline_on not in (None, *BASELINES[name].inputs):
            raise BadInputError(
                f"the baseline {name} does not run on {config.baseline_on}, only on "
                f"{' and '.join(BASELINES[name].inputs)}"
            )
        if given := next(iter(config.settings), None):
            raise BadInputError(f"--{given} is for CNAPS models; the baseline {name} has none to choose")
    refined = refines(name, config.variant)
    if config.shortlist is not None and (config.covariance == "task" or refined):
        raise BadInputError("--shortlist is for models without refinement, with --covariance seen")
    if not refined and (config.refine_min, config.refine_max) != (None, None):
        of = name if config.variant is None else f"{name}, variant {config.variant},"
        raise BadInputError(f"refinement is the transductive model's; {of} has none")
    if config.query_scope == "stream" and (not refined or config.head == "multi"):
        raise BadInputError(
            "--query-scope stream is for the single head of the transductive model: models without refinement do not "
            "use the query set as a whole, and the multi head always uses the queries of one task"
        )
