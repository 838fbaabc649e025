"""Streams: a CNAPS model or a baseline learns tasks one after another, and every task seen is scored after each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, open_sources, plan_stream
from cl_cnaps.continual.planning import read_class_order
from cl_cnaps.continual.stream import Head, RunResult, run_stream
from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.base import Context, Experiment, Row, Summary, Unit, given_features
from cl_cnaps.experiments.options import StreamOptions
from cl_cnaps.experiments.stream_models import (
    LearnerMaker,
    Makers,
    SharedRun,
    each_model,
    embeds,
    on_given_features,
)
from cl_cnaps.metrics.continual import accuracy_matrix, image_weighted, query_counts, summarise
from cl_cnaps.metrics.intervals import Array, estimate, interval95
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
            one_each = [on_given_features(one, keep, features) for one in one_each]
        if keep is not None and not any(map(embeds, one_each)):
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
        """Count the queries of each class by the class predicted, after the last step of all runs together."""
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
