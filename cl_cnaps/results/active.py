"""Records of `cl-cnaps active`: one model on the tasks of one source, with a curve for every strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cl_cnaps.active.plan import ActivePlan, DrawSampler
from cl_cnaps.active.run import Curves
from cl_cnaps.episodes import episodes_digest
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.evaluation.frozen import constant_film
from cl_cnaps.evaluation.overlap import seen_in_pretraining, seen_in_training
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.results.active_curves import curve_figures
from cl_cnaps.results.continual import Array
from cl_cnaps.results.environment import describe_environment
from cl_cnaps.results.record import Record, read_record, record_name, record_path, records_under, write_record

VERB = "active"
TABLE = "curves"

Entry = dict[str, Any]
"""One task and strategy: an entry in summary.json, and one line of `cl-cnaps active --json`."""


@dataclass(frozen=True)
class ActiveRecord:
    """A record with its entries and raw accuracies."""

    record: Record

    @property
    def path(self) -> Path:
        """The record's folder."""
        return self.record.path

    @property
    def entries(self) -> list[Entry]:
        """One for each task and strategy."""
        return list(self.record.summary["results"])

    def curves(self, alphabet: str | None) -> dict[str, Array]:
        """The curves of one task: strategy -> A[run, point]."""
        cells: dict[str, dict[tuple[int, int], float]] = {}
        for row in self.record.table(TABLE):
            if row["alphabet"] == (alphabet or ""):
                place = int(row["run"]), int(row["point"])
                cells.setdefault(row["strategy"], {})[place] = float(row["accuracy"])
        return {name: _array(found) for name, found in cells.items()}

    def entries_to_reach(self, reach: float | None) -> list[Entry]:
        """The entries with the labels needed to reach this accuracy in place of the one they were written with."""
        if reach is None:
            return self.entries
        entries = []
        for alphabet, mine in _by_task(self.entries).items():
            figures = curve_figures(mine[0]["labels"], self.curves(alphabet), reach)
            entries += [{**entry, "reach": figures[entry["strategy"]]["reach"]} for entry in mine]
        return entries


def active_config(
    plan: ActivePlan, loaded: LoadedModel, strategies: Sequence[str], query_set: int
) -> dict[str, Any]:
    """Everything that determines the numbers, but not how fast or where they are made."""
    model = loaded.model.config
    return {
        "source": plan.source,
        "model": model.model,
        "backbone": model.backbone,
        "adaptation": model.adaptation,
        "strategies": list(strategies),
        "protocol": asdict(plan.protocol),
        "alphabets": [task.name for task in plan.tasks if task.name is not None],
        "query_set": query_set if model.refines else None,
        "seed": plan.seed,
        "classes": plan.tasks_of.chosen,
        "data_digest": plan.tasks_of.images.digest(),
        "backbone_digest": loaded.model.backbone.digest(),
        "weights_digest": loaded.weights_digest,
        "model_config": model.as_json(),
    }


def record_name_of(plan: ActivePlan, loaded: LoadedModel) -> str:
    """The name of the folder that a record is in."""
    return record_name(f"{plan.source}-{loaded.model.config.model}")


def write_active_record(
    out: Path,
    config: Mapping[str, Any],
    plan: ActivePlan,
    loaded: LoadedModel,
    found: Sequence[Curves],
    *,
    reach: float | None,
    environment_extra: Mapping[str, Any],
) -> ActiveRecord:
    """Write `<out>/active/<source>-<model>/<id>/`, replacing a record of the same configuration."""
    name = record_name_of(plan, loaded)
    entries = list(_entries(plan, loaded, config, found, reach))
    record = write_record(
        out,
        VERB,
        name,
        config,
        environment=describe_environment(
            {
                "seed": plan.seed,
                "data_digest": config["data_digest"],
                "weights_digest": loaded.weights_digest,
                "backbone_digest": config["backbone_digest"],
                **environment_extra,
            }
        ),
        tables={TABLE: _rows(plan, found)},
        summary={
            "verb": VERB,
            "name": name,
            "id": record_path(out, VERB, name, config).name,
            "seconds": sum(one.seconds for one in found),
            "results": entries,
        },
    )
    return ActiveRecord(record)


def read_active_record(path: Path) -> ActiveRecord:
    """The record of active learning in the folder `path`."""
    record = read_record(path)
    if record.summary.get("verb") != VERB:
        raise BadInputError(f"{path} is a record of {record.summary.get('verb')!r}, not of active learning")
    return ActiveRecord(record)


def active_records(paths: Iterable[Path]) -> list[ActiveRecord]:
    """The records of active learning at or below `paths`, each once; other verbs' records are passed over."""
    found: dict[Path, ActiveRecord] = {}
    for path in paths:
        mine = [record for record in records_under(path) if record.summary.get("verb") == VERB]
        if not mine:
            raise MissingDataError(
                f"{path} is no record of active learning and holds none; `cl-cnaps active` makes one and names it"
            )
        for record in mine:
            found.setdefault(record.path.resolve(), ActiveRecord(record))
    return list(found.values())


def _entries(
    plan: ActivePlan,
    loaded: LoadedModel,
    config: Mapping[str, Any],
    found: Sequence[Curves],
    reach: float | None,
) -> Iterator[Entry]:
    model, info = loaded.model.config, loaded.model.backbone.info
    overlap = seen_in_pretraining(plan.source, info.pretraining)
    trained = seen_in_training(plan.source, plan.tasks_of, loaded.trained_on)
    protocol = asdict(plan.protocol)
    for number, task in enumerate(plan.tasks):
        mine = sorted((one for one in found if one.unit.task == number), key=lambda one: one.unit.run)
        if [one.unit.run for one in mine] != list(range(plan.protocol.runs)):
            raise BadInputError(f"{plan.protocol.runs} runs were asked for, {len(mine)} are there")
        sampler = DrawSampler(plan, task)
        episode = sampler.episode(0)
        labels = [point.labels for point in next(iter(mine[0].curves.values()))]
        curves = {
            name: np.array([[point.accuracy for point in one.curves[name]] for one in mine])
            for name in mine[0].curves
        }
        for name, figures in curve_figures(labels, curves, reach).items():
            yield {
                "source": plan.source,
                "alphabet": task.name,
                "model": model.model,
                "metric": model.metric,
                "variant": model.variant,
                "backbone": model.backbone,
                "adaptation": model.adaptation,
                "features": "adapted to the labels"
                if constant_film(loaded.model) is None
                else "the same throughout",
                "strategy": name,
                **figures,
                "classes": len(task.classes),
                **{key: protocol[key] for key in ("initial", "per_round", "rounds", "runs")},
                "pool": len(episode.support) - labels[0],
                "test": len(episode.query),
                "query_set": config["query_set"],
                "temperature": float(loaded.model.temperature.detach()),
                "seed": plan.seed,
                "draws_digest": episodes_digest(sampler.episode(run) for run in range(plan.protocol.runs)),
                "test_classes": plan.tasks_of.chosen,
                "data_source": plan.tasks_of.images.origin,
                "weights_source": loaded.weights_source,
                "backbone_pretraining": info.pretraining,
                "seen_in_pretraining": overlap.words,
                "classes_seen_in_pretraining": overlap.seen,
                "seen_in_training": trained.words,
                "classes_seen_in_training": trained.seen,
            }


def _rows(plan: ActivePlan, found: Sequence[Curves]) -> Iterator[dict[str, Any]]:
    for one in sorted(found, key=lambda one: (one.unit.task, one.unit.run)):
        for strategy, points in one.curves.items():
            for number, point in enumerate(points):
                yield {
                    "run": one.unit.run,
                    "source": plan.source,
                    "alphabet": plan.tasks[one.unit.task].name or "",
                    "strategy": strategy,
                    "point": number,
                    "labels": point.labels,
                    "accuracy": point.accuracy,
                }


def _by_task(entries: Sequence[Entry]) -> dict[str | None, list[Entry]]:
    tasks: dict[str | None, list[Entry]] = {}
    for entry in entries:
        tasks.setdefault(entry["alphabet"], []).append(entry)
    return tasks


def _array(cells: Mapping[tuple[int, int], float]) -> Array:
    runs, points = (1 + max(place[axis] for place in cells) for axis in (0, 1))
    if len(cells) != runs * points:
        raise BadInputError(f"{runs} runs of {points} points have {len(cells)} accuracies")
    return np.array([[cells[run, point] for point in range(points)] for run in range(runs)])
