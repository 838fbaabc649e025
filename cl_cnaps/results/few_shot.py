"""Records of `cl-cnaps evaluate`: one model on the data sets and task shapes of one target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.evaluation.overlap import seen_in_pretraining, seen_in_training
from cl_cnaps.evaluation.run import Outcome
from cl_cnaps.evaluation.targets import Target, TargetSet
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.results.environment import describe_environment
from cl_cnaps.results.few_shot_averages import Averages, averages
from cl_cnaps.results.few_shot_recall import recall_rows
from cl_cnaps.results.paper.ablations import ablation_figure
from cl_cnaps.results.paper.few_shot import TrainedOn, few_shot_figure
from cl_cnaps.results.record import Record, read_record, record_name, record_path, records_under, write_record
from cl_cnaps.results.wording import is_plain

VERB = "evaluate"
EPISODES = "episodes"
RECALL = "recall"

Entry = dict[str, Any]
"""One data set and task shape: an entry in summary.json, and one line of `cl-cnaps evaluate --json`."""


@dataclass(frozen=True)
class Result:
    """The tasks of one shape on one data set of a target."""

    of: TargetSet
    outcome: Outcome


@dataclass(frozen=True)
class FewShotRecord:
    """A record with its entries."""

    record: Record

    @property
    def path(self) -> Path:
        """The record's folder."""
        return self.record.path

    @property
    def entries(self) -> list[Entry]:
        """One for each data set and task shape."""
        return list(self.record.summary["results"])

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Data sets of the target that were not there."""
        return list(self.record.summary["missing"])

    @property
    def averages(self) -> Averages:
        """Group of data sets -> mean accuracy and rank; empty where there are no groups."""
        return dict(self.record.summary["averages"])


def few_shot_config(
    target: Target, loaded: LoadedModel, *, tasks: int, seed: int, method: CnapsConfig | None = None
) -> dict[str, Any]:
    """Everything that determines the numbers of an evaluation, but not how fast or where they are made.

    `method` is how the model's features are classified, where that is not the model's own way.
    """
    model = method or loaded.model.config
    return {
        "target": target.name,
        "model": model.model,
        "backbone": model.backbone,
        "backbone_digest": loaded.model.backbone.digest(),
        "image_size": model.image_size,
        "adaptation": model.adaptation,
        "metric": model.metric,
        # Left out where there is none, so that records keep the names they had before there were variants.
        **({} if model.variant == "plain" else {"variant": model.variant}),
        "normaliser": model.normaliser,
        "weights": loaded.weights_digest,
        "refine": {"min": model.refine_min, "max": model.refine_max} if model.refines else None,
        "tasks": tasks,
        "seed": seed,
        "shapes": [asdict(shape) for shape in target.shapes],
        "data_sets": {
            one.name: {"classes": one.tasks_of.chosen, "digest": one.tasks_of.images.digest()}
            for one in target.sets
        },
    }


def few_shot_name(target: Target, loaded: LoadedModel) -> str:
    """The folder of a record: target and model, then the variant and the metric that are not the model's own."""
    model = loaded.model.config
    variant = () if model.variant == "plain" else (model.variant,)
    metric = () if model.metric == "mahalanobis" or model.model == "protonet" else (model.metric,)
    return record_name("-".join((target.name, model.model, *variant, *metric)))


def few_shot_entry(
    target: str, result: Result, loaded: LoadedModel, seed: int, method: CnapsConfig | None = None
) -> Entry:
    """All that is said of one data set and task shape. Accuracies are fractions, the paper's figures per cent."""
    of, outcome, model = result.of, result.outcome, method or loaded.model.config
    shape, scores, info = outcome.shape, outcome.scores, loaded.model.backbone.info
    overlap = seen_in_pretraining(of.stand_in or of.name, info.pretraining)
    trained = seen_in_training(of.stand_in or of.name, of.tasks_of, loaded.trained_on)
    classes = sum(one.way for one in scores)
    return {
        "target": target,
        "data_set": of.name,
        "title": of.title,
        "domain": of.domain,
        "stand_in": of.stand_in,
        "model": model.model,
        "backbone": model.backbone,
        "adaptation": model.adaptation,
        "metric": model.metric,
        "variant": model.variant,
        "features": "the same for all tasks" if outcome.embedded_once else "adapted to each task",
        "ways": shape.ways,
        "shots": shape.shots,
        "queries": shape.queries,
        "shape": shape.words,
        "tasks": len(scores),
        "accuracy": asdict(outcome.accuracy),
        "mean_ways": classes / len(scores),
        "mean_shots": sum(sum(one.shots) for one in scores) / classes,
        "seed": seed,
        "episodes_digest": outcome.episodes_digest,
        "test_classes": of.tasks_of.chosen,
        "data_source": of.tasks_of.images.origin,
        "data_digest": of.tasks_of.images.digest(),
        "weights_source": loaded.weights_source,
        "backbone_pretraining": info.pretraining,
        "seen_in_pretraining": overlap.words,
        "classes_seen_in_pretraining": overlap.seen,
        "seen_in_training": trained.words,
        "classes_seen_in_training": trained.seen,
        "paper": _paper(result, model, "benchmark"),
        "paper_imagenet": _paper(result, model, "imagenet"),
        "seconds": outcome.seconds,
    }


def write_few_shot_record(
    out: Path,
    target: Target,
    results: Sequence[Result],
    loaded: LoadedModel,
    *,
    tasks: int,
    seed: int,
    environment_extra: Mapping[str, Any],
) -> FewShotRecord:
    """Write `<out>/evaluate/<name>/<id>/`, replacing a record of the same configuration."""
    if not results:
        raise BadInputError("there is no result to write")
    config = few_shot_config(target, loaded, tasks=tasks, seed=seed)
    name = few_shot_name(target, loaded)
    entries = [few_shot_entry(target.name, result, loaded, seed) for result in results]
    record = write_record(
        out,
        VERB,
        name,
        config,
        environment=describe_environment(
            {
                "seed": seed,
                "data_digests": {one.name: one.tasks_of.images.digest() for one in target.sets},
                "weights_digest": loaded.weights_digest,
                "backbone_digest": loaded.model.backbone.digest(),
                **environment_extra,
            }
        ),
        tables={EPISODES: episode_rows(results), RECALL: recall_rows(_named(results))},
        summary={
            "verb": VERB,
            "name": name,
            "id": record_path(out, VERB, name, config).name,
            "results": entries,
            "averages": averages(entries),
            "missing": [asdict(one) for one in target.missing],
        },
    )
    return FewShotRecord(record)


def few_shot_records(paths: Iterable[Path]) -> list[FewShotRecord]:
    """The records of evaluations at or below `paths`, each once; other verbs' records are passed over."""
    found: dict[Path, FewShotRecord] = {}
    for path in paths:
        mine = [record for record in records_under(path) if record.summary.get("verb") == VERB]
        if not mine:
            raise MissingDataError(
                f"{path} is no record of an evaluation and holds none; `cl-cnaps evaluate` makes one and names it"
            )
        for record in mine:
            found.setdefault(record.path.resolve(), FewShotRecord(record))
    return list(found.values())


def read_few_shot_record(path: Path) -> FewShotRecord:
    """The record of an evaluation in the folder `path`."""
    record = read_record(path)
    if record.summary.get("verb") != VERB:
        raise BadInputError(f"{path} is a record of {record.summary.get('verb')!r}, not of an evaluation")
    return FewShotRecord(record)


def _paper(result: Result, model: CnapsConfig, trained_on: TrainedOn) -> dict[str, Any] | None:
    """The paper's cell; none for other numbers of queries than the 10 it has."""
    shape = result.outcome.shape
    if shape.queries != 10:
        return None
    figure = None
    if is_plain(asdict(model)):
        figure = few_shot_figure(result.of.name, shape.words, model.model, trained_on)
    elif trained_on == "benchmark" and (model.variant == "plain" or model.metric == "mahalanobis"):
        figure = ablation_figure(result.of.name, shape.words, model.variant, model.metric)
    if figure is None:
        return None
    return {"mean": figure.mean, "interval": figure.interval, "unit": "percent", "label": figure.label}


def _named(results: Sequence[Result]) -> Iterator[tuple[str, Outcome]]:
    return ((result.of.name, result.outcome) for result in results)


def episode_rows(results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    """Every task with its shape and accuracy: the rows of episodes.csv."""
    for name, outcome in _named(results):
        for one in outcome.scores:
            yield {
                "data_set": name,
                "shape": outcome.shape.words,
                "queries": outcome.shape.queries,
                "episode": one.index,
                "ways": one.way,
                "support_images": sum(one.shots),
                "query_images": sum(one.queries),
                "accuracy": one.accuracy,
            }
