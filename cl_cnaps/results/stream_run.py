"""From a configuration to a finished stream record: runs, resumed where a journal has them, and their numbers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cl_cnaps.continual.benchmarks import StreamConfig, StreamPlan, open_sources, plan_stream
from cl_cnaps.continual.protocol import RunResult, run_stream
from cl_cnaps.continual.stream import Head
from cl_cnaps.data import open_source
from cl_cnaps.results.journal import Journal
from cl_cnaps.results.record import find_record, record_name, record_path
from cl_cnaps.results.stream_asked import StreamRun, check
from cl_cnaps.results.stream_learners import LearnerMaker, learner_maker
from cl_cnaps.results.streams import VERB, StreamRecord, read_stream_record, write_stream_record


class Progress(Protocol):
    """What a watcher of the runs is told."""

    def plan(self, name: str, runs: int, tasks: int, finished: int) -> None:
        """A stream is about to run; some of its runs may be finished already."""

    def say(self, sentence: str) -> None:
        """Something that a person should know about how the runs are made."""

    def step(self, run: int, step: int, accuracy: Mapping[Head, float]) -> None:
        """A task was learned and all tasks seen were scored."""


def prepare_stream(asked: StreamRun, *, download: bool, keep: Path | None = None) -> PreparedStream:
    """Open the data and load the model, so that all that decides the numbers is known.

    Features are found and left in the folder `keep`, if there is one.
    """
    check(asked)
    plan = plan_stream(
        StreamConfig(
            asked.benchmark,
            asked.shots,
            asked.queries,
            asked.classes_per_task,
            asked.class_order,
            asked.shuffle_classes,
            asked.seed,
            asked.base_classes,
            asked.base_shots,
            asked.lists,
            asked.repeat,
        ),
        *open_sources(asked.benchmark, partial(open_source, download=download)),
    )
    make = learner_maker(asked, keep)
    return PreparedStream(asked, plan, make, _config(asked, plan, make))


@dataclass(frozen=True)
class PreparedStream:
    """A stream experiment that is ready to run."""

    asked: StreamRun
    plan: StreamPlan
    make: LearnerMaker
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What its records are kept under."""
        return record_name(self.asked.benchmark)

    def place(self, out: Path) -> Path:
        """Where its record is, or will be."""
        return record_path(out, VERB, self.name, self.config)

    def run(self, out: Path, *, resume: bool, progress: Progress) -> StreamRecord:
        """Run it and write its record.

        With `resume`, runs that a killed process had finished are taken from its journal, and a record of the same
        configuration that is finished already is returned as it is.
        """
        asked, plan, make, config = self.asked, self.plan, self.make, self.config
        journal = Journal(out, VERB, self.name, config, resume=resume)
        title = f"{asked.model} {config['encoding'] or ''}".strip()
        done = find_record(out, VERB, self.name, config) if resume and not journal.finished else None
        finished = asked.runs if done is not None else len(journal.finished)
        progress.plan(title, asked.runs, len(plan.tasks), finished)
        if done is not None:
            return read_stream_record(done.path)
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
            task_names=[task.name for task in plan.tasks],
            summary_extra={
                "seconds": sum(result.seconds for result in results),
                "memory_bytes": max(result.memory_bytes for result in results),
                "data_source": plan.described_origin,
                "weights_source": make.weights_source,
                "backbone_pretraining": make.pretraining,
            },
            environment_extra={
                "seeds": {"seed": asked.seed, "shuffle_classes": asked.shuffle_classes},
                "data_digest": config["data_digest"],
                "weights_digest": make.weights_digest,
                "backbone_digest": make.backbone_digest,
            },
        )


def _config(asked: StreamRun, plan: StreamPlan, make: LearnerMaker) -> dict[str, Any]:
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
        "tasks": [list(task.class_names) for task in plan.tasks],
        "data_digest": plan.digest(),
        "backbone_digest": make.backbone_digest,
        "weights_digest": make.weights_digest,
        **plan.details,
        **make.settings,
    }
