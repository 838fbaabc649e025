"""From what is asked for to finished records of active learning: runs, resumed where a journal has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from cl_cnaps.active.acquisition import Strategy, chosen_strategies
from cl_cnaps.active.learner import QUERY_SET
from cl_cnaps.active.loop import Point
from cl_cnaps.active.plan import ActivePlan, make_plan
from cl_cnaps.active.run import Curves, Unit, run_units, units_of
from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.evaluation.run import with_packed_images
from cl_cnaps.evaluation.workers import Workers, usable_cores
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.models.variants import chosen_model, refines
from cl_cnaps.results.active import (
    VERB,
    ActiveRecord,
    active_config,
    read_active_record,
    record_name_of,
    write_active_record,
)
from cl_cnaps.results.journal import Journal
from cl_cnaps.results.model_asked import ModelAsked
from cl_cnaps.results.record import find_record, record_path


@dataclass(frozen=True, kw_only=True)
class ActiveRun(ModelAsked):
    """Everything an experiment is asked for. None stands for the default of the model or source."""

    source: str = "cifar10"
    strategies: tuple[str, ...] = ("random", "entropy", "variation-ratio")
    adaptation: Literal["film", "none", "both"] | None = None
    """both: with adapted and with frozen features; None: the same if there are weights for the former."""
    alphabets: tuple[str, ...] | None = None
    paper: bool = False
    """The paper's protocol in full, in place of a short one."""
    initial: int | None = None
    per_round: int | None = None
    rounds: int | None = None
    runs: int | None = None
    pool: int | None = None
    test: int | None = None
    query_set: int | None = None
    reach: float | None = None
    """The accuracy whose labels are counted."""
    workers: int | None = None
    """Processes; None for one for each core, or none but this one with a GPU. Changes no number."""


class Progress(Protocol):
    """What a watcher is told."""

    def plan(self, name: str, units: int, finished: int) -> None:
        """A model is about to run; some of its units may be finished already."""

    def preparing(self, what: str) -> None:
        """Something is done that all runs share."""

    def unit(self, what: str, final: Mapping[str, float]) -> None:
        """One run of one task is done, with this accuracy at the end for each strategy."""


def run_and_record(
    asked: ActiveRun, out: Path, *, resume: bool, progress: Progress, download: bool
) -> list[ActiveRecord]:
    """Run an experiment and write its records: one for each kind of features, adapted before frozen.

    With `resume`, runs that a killed process had finished are taken from its journal, and a record of the same
    configuration that is finished already is returned as it is.
    """
    prepared = prepare_active(asked, download=download)
    return [one.run(out, workers=asked.workers, resume=resume, progress=progress) for one in prepared]


def prepare_active(asked: ActiveRun, *, download: bool) -> list[PreparedActive]:
    """Open the data and load the models, so that all that decides the numbers is known."""
    _check(asked)
    strategies = chosen_strategies(asked.strategies)
    source = open_source(asked.source, download=download)
    given = {
        name: getattr(asked, name) for name in ("initial", "per_round", "rounds", "runs", "pool", "test")
    }
    plan = make_plan(source, given=given, paper=asked.paper, alphabets=asked.alphabets, seed=asked.seed)
    query_set = asked.query_set or QUERY_SET
    return [PreparedActive(plan, loaded, strategies, query_set, asked.reach) for loaded in _models(asked)]


@dataclass(frozen=True)
class PreparedActive:
    """One model that is ready to run."""

    plan: ActivePlan
    loaded: LoadedModel
    strategies: Mapping[str, Strategy]
    query_set: int
    reach: float | None

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the record's id is made from."""
        return active_config(self.plan, self.loaded, list(self.strategies), self.query_set)

    @property
    def name(self) -> str:
        """What its records are kept under."""
        return record_name_of(self.plan, self.loaded)

    def place(self, out: Path) -> Path:
        """Where its record is, or will be."""
        return record_path(out, VERB, self.name, self.config)

    def run(self, out: Path, *, workers: int | None, resume: bool, progress: Progress) -> ActiveRecord:
        """As `run_and_record`."""
        plan, model = self.plan, self.loaded.model
        journal = Journal(out, VERB, self.name, self.config, resume=resume)
        done = find_record(out, VERB, self.name, self.config) if resume and not journal.finished else None
        units = units_of(plan)
        missing = [unit for unit in units if _key(plan, unit) not in journal.finished] if done is None else []
        words = "frozen features" if model.config.adaptation == "none" else "adapted features"
        progress.plan(f"{model.config.model}, {words}", len(units), len(units) - len(missing))
        if done is not None:
            return read_active_record(done.path)
        if workers is None:
            workers = usable_cores() if model.device.type == "cpu" else 0
        for one in self._curves(missing, workers, progress):
            journal.add(_key(plan, one.unit), asdict(one))
            task = plan.tasks[one.unit.task].name
            final = {name: points[-1].accuracy for name, points in one.curves.items()}
            progress.unit(f"{task + ', ' if task else ''}run {one.unit.run + 1}", final)
        return write_active_record(
            out,
            self.config,
            plan,
            self.loaded,
            [_from_journal(journal.finished[_key(plan, unit)]) for unit in units],
            reach=self.reach,
            environment_extra={"device": str(model.device), "workers": workers},
        )

    def _curves(self, units: list[Unit], workers: int, progress: Progress) -> Iterator[Curves]:
        """The curves of these units, as they are done."""
        size = self.loaded.model.backbone.info.image_size
        images = with_packed_images(self.plan.tasks_of, size, lambda _: progress.preparing("reading images"))
        with Workers(self.loaded.model, workers if units else 0) as pool:
            yield from run_units(
                pool,
                self.plan,
                images,
                self.strategies,
                units,
                query_set=self.query_set,
                progress=lambda: progress.preparing("embedding images"),
            )


def _check(asked: ActiveRun) -> None:
    """Refuse what would have no effect, so that nobody reads a result as that of an option it does not have."""
    name = chosen_model(asked.model, asked.variant)
    if refines(name, asked.variant):
        return
    for option in ("query_set", "refine_min", "refine_max"):
        if getattr(asked, option) is not None:
            raise BadInputError(
                f"--{option.replace('_', '-')} is for models that refine, not for {asked.variant or name}"
            )


def _models(asked: ActiveRun) -> list[LoadedModel]:
    """The models to run: adapted, frozen or both."""
    if asked.adaptation in ("film", "none"):
        return [asked.load(asked.adaptation)]
    first = asked.load(None if asked.adaptation is None else "film")
    without_frozen = asked.adaptation is None and first.model.config.variant == "plus"
    if first.model.config.adaptation == "none" or without_frozen:
        return [first]
    return [first, asked.load("none")]


def _key(plan: ActivePlan, unit: Unit) -> str:
    return f"{plan.tasks[unit.task].name or plan.source}/run-{unit.run}"


def _from_journal(entry: Mapping[str, Any]) -> Curves:
    curves = {name: [Point(**point) for point in points] for name, points in entry["curves"].items()}
    return Curves(Unit(**entry["unit"]), curves, entry["seconds"])
