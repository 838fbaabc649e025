"""From a configuration to a finished stream record: runs, resumed where a journal has them, and their numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from cl_cnaps.continual.baselines import BASELINES, make_baseline
from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, plan_stream, source_name
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.protocol import RunResult, run_stream
from cl_cnaps.continual.stream import Head, Learner, Stream
from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import Metric, Unbounded
from cl_cnaps.models.cnaps import MODELS, CnapsModel
from cl_cnaps.models.compiling import CompileChoice, decide
from cl_cnaps.models.config import refinement_bounds
from cl_cnaps.models.loading import LoadedModel, load_model
from cl_cnaps.models.variants import Variant, chosen_model, refines
from cl_cnaps.results.journal import Journal
from cl_cnaps.results.record import find_record, record_name, record_path
from cl_cnaps.results.streams import VERB, StreamRecord, read_stream_record, write_stream_record


@dataclass(frozen=True)
class StreamRun:
    """Everything a stream experiment is asked for. None stands for the default of the model or benchmark."""

    benchmark: str = "split-mnist"
    model: str = "simple"
    """A CNAPS model or a baseline."""
    encoding: EncodingName = "first"
    heads: tuple[Head, ...] = ("single", "multi")
    backbone: str | None = None
    backbone_weights: str = "auto"
    weights: str | None = None
    adaptation: Literal["film", "none"] | None = None
    image_size: int | None = None
    baseline_on: Literal["features", "network"] | None = None
    query_scope: Literal["task", "stream"] = "task"
    metric: Metric | None = None
    variant: Variant | None = None
    refine_min: int | None = None
    refine_max: int | Unbounded | None = None
    shots: int | None = None
    queries: int | None = None
    runs: int = 5
    seed: int = 0
    classes_per_task: int | None = None
    class_order: tuple[str, ...] | None = None
    shuffle_classes: int | None = None
    device: str = "auto"
    compile_: CompileChoice | None = None
    """None is auto, and nothing is said about it unless it compiles."""


class Progress(Protocol):
    """What a watcher of the runs is told."""

    def plan(self, name: str, runs: int, tasks: int, finished: int) -> None:
        """A stream is about to run; some of its runs may be finished already."""

    def say(self, sentence: str) -> None:
        """Something that a person should know about how the runs are made."""

    def step(self, run: int, step: int, accuracy: Mapping[Head, float]) -> None:
        """A task was learned and all tasks seen were scored."""


def run_and_record(
    asked: StreamRun, out: Path, *, resume: bool, progress: Progress, download: bool
) -> StreamRecord:
    """Run a stream experiment and write its record.

    With `resume`, runs that a killed process had finished are taken from its journal, and a record of the same
    configuration that is finished already is returned as it is.
    """
    return prepare_stream(asked, download=download).run(out, resume=resume, progress=progress)


def prepare_stream(asked: StreamRun, *, download: bool) -> PreparedStream:
    """Open the data and load the model, so that all that decides the numbers is known."""
    _check(asked)
    plan = plan_stream(
        StreamConfig(
            asked.benchmark,
            asked.shots,
            asked.queries,
            asked.classes_per_task,
            asked.class_order,
            asked.shuffle_classes,
            asked.seed,
        ),
        open_source(source_name(asked.benchmark), download=download),
    )
    make = _cnaps(asked) if asked.model in MODELS else _baseline(asked)
    return PreparedStream(asked, plan, make, _config(asked, plan, make))


@dataclass(frozen=True)
class PreparedStream:
    """A stream experiment that is ready to run."""

    asked: StreamRun
    plan: StreamPlan
    make: _Maker
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What its records are kept under."""
        return record_name(self.asked.benchmark)

    def place(self, out: Path) -> Path:
        """Where its record is, or will be."""
        return record_path(out, VERB, self.name, self.config)

    def run(self, out: Path, *, resume: bool, progress: Progress) -> StreamRecord:
        """As `run_and_record`."""
        asked, plan, make, config = self.asked, self.plan, self.make, self.config
        journal = Journal(out, VERB, self.name, config, resume=resume)
        title = f"{asked.model} {config['encoding'] or ''}".strip()
        done = find_record(out, VERB, self.name, config) if resume and not journal.finished else None
        finished = asked.runs if done is not None else len(journal.finished)
        progress.plan(title, asked.runs, len(plan.tasks), finished)
        if done is not None:
            return read_stream_record(done.path)
        compiled = _compile(asked, plan, make.extractor, asked.runs - finished, progress)
        units = []
        for run in range(asked.runs):
            unit = journal.finished.get(f"run-{run}")
            if unit is None:
                stream = plan.stream(run, make.image_size)
                start = time.perf_counter()
                learner = make.learner(stream, run)  # baselines embed the support images here
                made = time.perf_counter() - start
                result = run_stream(learner, stream, asked.heads, run, partial(progress.step, run))
                result = replace(result, seconds=result.seconds + made)
                unit = journal.add(f"run-{run}", asdict(result))
            units.append(unit)
        results = [RunResult(**unit) for unit in units]
        return write_stream_record(
            out,
            self.name,
            config,
            [row for result in results for row in result.rows],
            task_names=[task for task, _ in plan.tasks],
            summary_extra={
                "seconds": sum(result.seconds for result in results),
                "memory_bytes": max(result.memory_bytes for result in results),
                "data_source": plan.source.origin,
                "weights_source": make.weights_source,
                "backbone_pretraining": make.pretraining,
            },
            environment_extra={
                "seeds": {"seed": asked.seed, "shuffle_classes": asked.shuffle_classes},
                "data_digest": config["data_digest"],
                "weights_digest": make.weights_digest,
                "backbone_digest": make.backbone_digest,
                "compiled": compiled,
            },
        )


def _compile(
    asked: StreamRun, plan: StreamPlan, extractor: CnapsModel | None, runs: int, progress: Progress
) -> bool:
    """Compile the feature extractor, if there is one, if that is asked for or pays; says so."""
    if extractor is None:
        if asked.compile_ == "on":
            raise BadInputError(
                f"--compile on is for backbones; {asked.model} trains a small network of its own"
            )
        return False
    moves = extractor.config.adaptation == "film" and asked.encoding != "first"
    images = runs * plan.embeddings(queries_once=not moves)
    decision = decide(asked.compile_ or "auto", extractor.backbone.info.name, extractor.device, images)
    if decision.compile:
        progress.say(extractor.compile_embedding())
    elif asked.compile_ == "auto":
        progress.say(decision.why)
    return extractor.compiled


@dataclass(frozen=True)
class _Maker:
    """Makes a learner for each run, and says what it is made of."""

    learner: Callable[[Stream, int], Learner]
    image_size: int
    settings: Mapping[str, Any]
    backbone: str
    weights_source: str
    weights_digest: str | None
    backbone_digest: str | None
    pretraining: str
    adaptation: str
    extractor: CnapsModel | None
    """What embeds images, if anything does."""


def _check(asked: StreamRun) -> None:
    """Refuse what would have no effect, so that nobody reads a result as that of an option it does not have."""
    if asked.model not in MODELS and asked.model not in BASELINES:
        raise BadInputError(f"unknown model {asked.model!r}; there are {', '.join([*MODELS, *BASELINES])}")
    if asked.runs < 1:
        raise BadInputError(f"at least 1 run is needed, {asked.runs} were asked for")
    if asked.model in MODELS and asked.baseline_on is not None:
        raise BadInputError(
            f"--baseline-on is for baselines; {asked.model} always works on its adapted features"
        )
    if asked.model in BASELINES and asked.weights is not None:
        raise BadInputError(
            f"--weights is for CNAPS models; the baseline {asked.model} uses the frozen backbone"
        )
    if asked.model in BASELINES and asked.adaptation == "film":
        raise BadInputError(
            f"--adaptation film is for CNAPS models; the baseline {asked.model} adapts no features"
        )
    if asked.model in BASELINES and asked.baseline_on not in (None, *BASELINES[asked.model].inputs):
        raise BadInputError(
            f"the baseline {asked.model} does not run on {asked.baseline_on}, only on "
            f"{' and '.join(BASELINES[asked.model].inputs)}"
        )
    if asked.model in BASELINES and asked.metric is not None:
        raise BadInputError(f"--metric is for CNAPS models; the baseline {asked.model} has none to choose")
    refined = refines(chosen_model(asked.model, asked.variant), asked.variant)
    name = asked.model if asked.variant is None else f"{asked.model}, variant {asked.variant},"
    if not refined and _refinement(asked):
        raise BadInputError(f"refinement is the transductive model's; {name} has none")
    if asked.query_scope == "stream" and (not refined or "single" not in asked.heads):
        raise BadInputError(
            "--query-scope stream is for the single head of the transductive model: models without refinement do not "
            "look at the query set as a whole, and the multi head always looks at the queries of one task"
        )


def _cnaps(asked: StreamRun) -> _Maker:
    loaded = load_model(
        asked.model,  # type: ignore[arg-type]  # checked by the caller
        backbone=asked.backbone,
        weights=asked.weights,
        backbone_weights=asked.backbone_weights,
        adaptation=asked.adaptation,
        image_size=asked.image_size,
        seed=asked.seed,
        device=asked.device,
        metric=asked.metric,
        variant=asked.variant,
        **_refinement(asked),
    )
    model = loaded.model
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    def learner(stream: Stream, _run: int) -> Learner:
        return CnapsLearner(stream, model, asked.encoding, asked.query_scope)

    settings: dict[str, Any] = {"encoding": asked.encoding, "model_config": model.config.as_json()}
    if model.config.refines:
        settings["query_scope"] = asked.query_scope
    return _maker(loaded, learner, settings)


def _baseline(asked: StreamRun) -> _Maker:
    info = BASELINES[asked.model]
    on = asked.baseline_on or info.inputs[0]
    # Baselines see the same images at the same size, whether or not they use the backbone.
    loaded = load_model(
        "simple",
        backbone=asked.backbone,
        backbone_weights=asked.backbone_weights,
        adaptation="none",
        image_size=asked.image_size,
        seed=asked.seed,
        device=asked.device,
    )
    model = loaded.model
    with quiet_avalanche():
        import cl_cnaps.continual.baselines.build  # noqa: F401  # now, so that no run's seconds have it in them

    def learner(stream: Stream, run: int) -> Learner:
        network = model.fold(model.adapt(None)) if on == "features" else None
        features = None if network is None else (lambda images: model.embed_folded(images, network))
        seed = asked.seed * 1_000_003 + run
        return make_baseline(asked.model, stream, on=on, features=features, seed=seed, device=model.device)

    maker = _maker(loaded, learner, {"encoding": None, "baseline_on": on, "baseline": asdict(info.defaults)})
    return (
        maker
        if on == "features"
        else replace(
            maker,
            backbone="none",
            weights_source="none: trained on the stream",
            backbone_digest=None,
            pretraining="none",
            extractor=None,
        )
    )


def _maker(
    loaded: LoadedModel, learner: Callable[[Stream, int], Learner], settings: Mapping[str, Any]
) -> _Maker:
    info = loaded.model.backbone.info
    return _Maker(
        learner,
        info.image_size,
        settings,
        info.name,
        f"{loaded.weights_source}; backbone {info.name} from {info.weights_source}",
        loaded.weights_digest,
        loaded.model.backbone.digest(),
        info.pretraining,
        loaded.model.config.adaptation,
        loaded.model,
    )


def _refinement(asked: StreamRun) -> dict[str, Any]:
    """The bounds of the refinement where something is asked of them."""
    if asked.refine_min is None and asked.refine_max is None:
        return {}
    least, most = refinement_bounds(asked.refine_min, asked.refine_max)
    return {"refine_min": least, "refine_max": most}


def _config(asked: StreamRun, plan: StreamPlan, make: _Maker) -> dict[str, Any]:
    """What the record's id is made from: everything that decides a number, resolved; nothing else."""
    return {
        "model": asked.model,
        "benchmark": asked.benchmark,
        "heads": list(asked.heads),
        "backbone": make.backbone,
        "adaptation": make.adaptation,
        "image_size": make.image_size,
        "shots": plan.shots,
        "queries": plan.queries,
        "runs": asked.runs,
        "seed": asked.seed,
        "tasks": [list(classes) for _, classes in plan.tasks],
        "data_digest": plan.source.digest(),
        "backbone_digest": make.backbone_digest,
        "weights_digest": make.weights_digest,
        **make.settings,
    }
