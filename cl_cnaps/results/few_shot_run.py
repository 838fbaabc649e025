"""From a configuration to a finished record of a few-shot evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cl_cnaps.data.source import total
from cl_cnaps.errors import BadInputError
from cl_cnaps.evaluation.run import Progress, run_tasks, with_packed_images
from cl_cnaps.evaluation.targets import Target, plan, refinement_steps, task_shapes
from cl_cnaps.evaluation.workers import Workers, usable_cores
from cl_cnaps.models.config import refinement_bounds
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.models.variants import refines
from cl_cnaps.results.few_shot import (
    VERB,
    Entry,
    FewShotRecord,
    Result,
    few_shot_config,
    few_shot_entry,
    few_shot_name,
    write_few_shot_record,
)
from cl_cnaps.results.model_asked import ModelAsked
from cl_cnaps.results.record import record_path


class Watch(Protocol):
    """Is told how few-shot tasks go."""

    def reading(self, title: str, images: int) -> AbstractContextManager[Any]:
        """Images of a data set are decoded; yields what is told how many more."""

    def tasks(self, title: str, tasks: int) -> AbstractContextManager[Progress]:
        """Tasks of a data set are scored; yields what is told their scores, with none that images were embedded."""

    def say(self, sentence: str) -> None:
        """Something that a person should know about how the tasks are run."""


@dataclass(frozen=True, kw_only=True)
class FewShotRun(ModelAsked):
    """Everything an evaluation is asked for. None and () stand for the default of the model or target."""

    target: str
    model: str = "simple"
    adaptation: Literal["film", "none"] | None = None
    tasks: int = 600
    ways: tuple[int, ...] = ()
    shots: tuple[int, ...] = ()
    queries: int | None = None
    variable: bool = False
    vary_queries: tuple[int, ...] = ()
    specs: Path | None = None


def prepare_few_shot(asked: FewShotRun) -> PreparedFewShot:
    """Open the data sets and load the model, so that all that decides the numbers is known."""
    if not refines(asked.model, asked.variant) and (asked.refine_min, asked.refine_max) != (None, None):
        raise BadInputError(
            f"--refine-min and --refine-max are for models that refine, not for {asked.variant or asked.model}"
        )
    shapes = task_shapes(
        asked.target,
        ways=asked.ways,
        shots=asked.shots,
        queries=asked.queries,
        variable=asked.variable,
        vary_queries=asked.vary_queries,
    )
    planned = plan(asked.target, shapes, specs=asked.specs)
    least, most = refinement_bounds(asked.refine_min, asked.refine_max, refinement_steps(asked.target))
    return PreparedFewShot(asked, planned, asked.load(asked.adaptation, refine_min=least, refine_max=most))


@dataclass(frozen=True)
class PreparedFewShot:
    """An evaluation that is ready to run."""

    asked: FewShotRun
    target: Target
    loaded: LoadedModel

    def place(self, out: Path) -> Path:
        """Where its record is, or will be."""
        config = few_shot_config(self.target, self.loaded, tasks=self.asked.tasks, seed=self.asked.seed)
        return record_path(out, VERB, few_shot_name(self.target, self.loaded), config)

    def run(
        self,
        out: Path,
        *,
        workers: int | None,
        watch: Watch,
        each: Callable[[Entry], None] = lambda _: None,
        keep: Path | None = None,
    ) -> FewShotRecord:
        """Score all tasks and write the record.

        Args:
            out: folder of records.
            workers: processes that share the work, 0 for this one alone; None: one for each core, with a GPU 0.
            watch: is told how it goes.
            each: told of each data set and task shape when it is done.
            keep: folder where features of adapted tasks are found and left.
        """
        device = self.loaded.model.device
        if workers is None:
            workers = usable_cores() if device.type == "cpu" else 0
        results = []
        with Workers(self.loaded.model, workers) as pool:
            for result in self._results(pool, watch, keep):
                results.append(result)
                each(few_shot_entry(self.target.name, result, self.loaded, self.asked.seed))
        return write_few_shot_record(
            out,
            self.target,
            results,
            self.loaded,
            tasks=self.asked.tasks,
            seed=self.asked.seed,
            environment_extra={
                "device": str(device),
                "workers": workers,
            },
        )

    def _results(self, pool: Workers, watch: Watch, keep: Path | None) -> Iterator[Result]:
        """Every data set and shape in turn."""
        tasks, shapes = self.asked.tasks, self.target.shapes
        for one in self.target.sets:
            with watch.reading(one.title, total(one.tasks_of.images)) as advance:
                images = with_packed_images(one.tasks_of, self.loaded.model.backbone.info.image_size, advance)
            with watch.tasks(one.title, tasks * len(shapes)) as progress:
                for outcome in run_tasks(
                    pool,
                    one.tasks_of,
                    images,
                    shapes,
                    tasks=tasks,
                    seed=self.asked.seed,
                    progress=progress,
                    keep=keep,
                ):
                    yield Result(one, outcome)
