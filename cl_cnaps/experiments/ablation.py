"""Ablations: variants of a model on the same tasks; nothing is embedded twice, or measured that a record has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import torch

from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments.base import Context, Row, Summary, Unit, load
from cl_cnaps.experiments.few_shot import Cell, Known, Method, TaskExperiment
from cl_cnaps.experiments.options import AblationOptions
from cl_cnaps.few_shot.ablations import (
    ABLATIONS,
    GLYPHS,
    AblationRow,
    check_rows,
    rows_of,
    targets_of,
)
from cl_cnaps.few_shot.run import encode_tasks, with_packed_images
from cl_cnaps.few_shot.targets import GROUPS, OFFLINE, Target, TargetSet, offline_words, refinement_steps
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models.adaptation import film_distance
from cl_cnaps.models.loading import LoadedModel, shipped
from cl_cnaps.models.networks import DEFAULT_BACKBONE
from cl_cnaps.records.record import Record, readable_record, record_folders

ENCODED_TASKS = 30
"""Of each data set, whose task encodings the ablation of the adaptation keeps."""
IDENTITY = "identity"
"""What stands for no FiLM among the modulations of data sets."""


@dataclass(frozen=True)
class AblationExperiment(TaskExperiment):
    """The rows of one ablation on the same tasks."""

    config: AblationOptions
    targets: Sequence[Target]
    methods: Sequence[Method]
    rows: Mapping[str, AblationRow]
    keep: Path | None = None

    verb = "ablate"
    Config = AblationOptions

    @classmethod
    def prepare(
        cls, config: AblationOptions, *, download: bool = True, keep: Path | None = None
    ) -> list[Self]:
        """Open the data sets and load the models of all rows."""
        if config.which not in ABLATIONS:
            raise BadInputError(f"there is no ablation {config.which!r}; there are {', '.join(ABLATIONS)}")
        weights = config.weights or {}
        check_rows(config.which, weights)
        targets = targets_of(config.which, config.sources or (), config.specs, download=download)
        models = _models(config)
        adaptation = next(iter(models.values())).model.config.adaptation
        rows = {row.key: row for row in rows_of(config.which, models, weights, adaptation)}
        usual = refinement_steps(targets[0].name)
        methods = [
            Method(key, models[key], row.config(models[key].model.config, usual)) for key, row in rows.items()
        ]
        return [cls(config, targets, methods, rows, keep)]

    @property
    def name(self) -> str:
        """The ablation."""
        return self.config.which

    @property
    def preface(self) -> Sequence[str]:
        """Which data sets are not there."""
        if self.config.sources:
            return []
        names = [one.name for target in self.targets for one in target.sets]
        if self.config.which == "queries":
            return [offline_words("mini-ImageNet", names)] if names == ["mnist"] else []
        if GLYPHS in names:
            return [offline_words("data set of Meta-Dataset", OFFLINE)]
        return [target.preface for target in self.targets if target.preface]

    @property
    def title(self) -> str:
        """The ablation."""
        return f"ablation {self.config.which}"

    @cached_property
    def identity(self) -> Mapping[str, Any]:
        """Everything that decides a number."""
        model = self.methods[0].config
        return {
            "ablation": self.config.which,
            "backbone": model.backbone,
            "adaptation": model.adaptation,
            "rows": [{"row": method.key, **method.identity} for method in self.methods],
            **self.task_identity,
        }

    def units(self) -> list[Unit]:
        """Return the units of the rows, then those of the task encodings."""
        return [*super().units(), *(unit for unit, _, _ in self._encoded())]

    def _encoded(self) -> list[tuple[Unit, Target, TargetSet]]:
        """The tasks whose encodings are kept: some of each data set, where the adaptation is ablated."""
        targets = self.targets if self.config.which == "adaptation" else ()
        steps = min(self.config.tasks, ENCODED_TASKS)
        return [(Unit(f"encodings {of.name}", steps), t, of) for t in targets for of in t.sets]

    def run(self, units: Sequence[Unit], context: Context) -> Iterator[tuple[Unit, Any]]:
        """Yield the cells of each unit, then the task encodings."""
        keys = {unit.key for unit in units}
        yield from super().run(units, context)
        left = [one for one in self._encoded() if one[0].key in keys]
        with Workers(self.methods[0].loaded.model, context.workers if left else 0) as pool:
            for unit, target, of in left:
                images = with_packed_images(of.tasks_of, pool.model.backbone.info.image_size)
                found = encode_tasks(
                    pool, of.tasks_of, images, target.shapes[0], tasks=unit.steps, seed=self.config.seed
                )
                context.progress.show(f"{of.title}: task encodings", unit.steps)
                yield unit, found

    def known(self, out: Path) -> Known:
        """Return the cells of evaluations and ablations under `out`; with class recall where the ablation needs it."""
        recall = self.config.which == "shots"
        return {
            row["cell"]: partial(_taken, record, key, row, recall=recall)
            for record, key, row in _measured_under(out)
            if not recall or (record.path / "recall.csv").is_file()
        }

    def summarise(self, results: Sequence[Any]) -> Summary:
        """Gather the cells of each row, and their means over data sets."""
        cells: dict[str, list[dict[str, Any]]] = {method.key: [] for method in self.methods}
        keys = iter([m.key for p in self._pieces for m in p.methods for _ in p.target.shapes])
        n_pieces = len(super().units())
        for result in results[:n_pieces]:
            for cell in result:
                cells[next(keys)].append(cell)
        named = [key for key in cells if not self.rows[key].of_grid]
        tables = {"episodes": _named(cells, named, "episodes")}
        if self.config.which == "shots":
            tables["recall"] = _named(cells, named, "recall")
        if encoded := self._encoded():
            encodings = {
                of.name: found for (_, _, of), found in zip(encoded, results[n_pieces:], strict=True)
            }
            tables["encodings"] = [
                {"data_set": name, "episode": i} | {f"e{n}": number for n, number in enumerate(encoding)}
                for name, of_set in encodings.items()
                for i, encoding in enumerate(of_set)
            ]
            tables["film_distances"] = _film_distances(self.methods[0].loaded, encodings)
        return Summary(
            rows=[self._row(method, cells[method.key]) for method in self.methods],
            tables=tables,
            facts=self.facts,
            environment=self.task_environment,
        )

    def _row(self, method: Method, cells: Sequence[Mapping[str, Any]]) -> Row:
        config = method.config
        results = [cell["row"] for cell in cells]
        return {
            "ablation": self.config.which,
            "row": method.key,
            "title": self.rows[method.key].title,
            "model": config.model,
            "variant": config.variant,
            "metric": config.metric,
            "refine": {"min": config.refine_min, "max": config.refine_max} if config.refines else None,
            "backbone": config.backbone,
            "adaptation": config.adaptation,
            "weights_source": method.loaded.weights_source,
            "results": results,
            "averages": _averages(results),
            "reused": sorted({cell["reused"] for cell in cells if cell["reused"]}),
        }


@torch.no_grad()
def _film_distances(loaded: LoadedModel, encodings: Mapping[str, Sequence[Sequence[float]]]) -> list[Row]:
    """Return how far the FiLM of data sets' mean encodings are from each other and from no FiLM, pair by pair."""
    model = loaded.model
    films = {
        name: model.adapt(torch.tensor(of_set, dtype=model.dtype, device=model.device).mean(dim=0))
        for name, of_set in encodings.items()
    }
    films[IDENTITY] = model.adapt(None)
    return [
        {"first": one, "second": other, "distance": float(f"{film_distance(films[one], films[other]):.4g}")}
        for one, other in combinations(films, 2)
    ]


def _averages(results: Sequence[Row]) -> dict[str, Row]:
    """Return the mean accuracy over the data sets in and out of domain, and over all."""
    found = {}
    for group, domains in GROUPS.items():
        members = [row for row in results if row["domain"] in domains]
        if members:
            found[group] = {
                "data_sets": [row["data_set"] for row in members],
                "accuracy": fmean(row["accuracy"]["mean"] for row in members),
            }
    return found


def _named(cells: Mapping[str, Sequence[Mapping[str, Any]]], keys: Sequence[str], table: str) -> list[Row]:
    return [{"row": key, **line} for key in keys for cell in cells[key] for line in cell[table]]


def _measured_under(out: Path) -> list[tuple[Record, str | None, Row]]:
    """Return the cells that records under `out` have: record, row of an ablation or None, and the row itself.

    A damaged record has none; the cells of a grid, whose tasks are not kept, are left out.
    """
    found: list[tuple[Record, str | None, Row]] = []
    for record in filter(None, map(readable_record, record_folders(out / "evaluate"))):
        found += [(record, None, row) for row in record.summary.get("rows", []) if "cell" in row]
    for record in filter(None, map(readable_record, record_folders(out / "ablate"))):
        kept = {line["row"] for line in record.table("episodes")}
        for row in record.summary.get("rows", []):
            if row["row"] in kept:
                found += [(record, row["row"], one) for one in row["results"] if "cell" in one]
    return found


def _taken(record: Record, key: str | None, row: Row, about: Row, *, recall: bool) -> Cell:
    """Return the cell that a record has; where its data set belongs may have another name there."""
    tasks = {name: str(row[name]) for name in ("data_set", "shape", "queries")}
    return {
        "row": {**row, **{name: about[name] for name in ("target", "title", "domain", "stand_in")}},
        "episodes": _lines(record, "episodes", key, tasks),
        "recall": _lines(record, "recall", key, tasks) if recall else [],
        "reused": "/".join(record.path.parts[-3:]),
    }


def _lines(record: Record, table: str, row: str | None, tasks: Mapping[str, str]) -> list[Row]:
    """Return the lines of a table on one data set, shape and number of queries."""
    return [
        {key: value for key, value in line.items() if key != "row"}
        for line in record.table(table)
        if line.get("row") == row and all(line[key] == value for key, value in tasks.items())
    ]


def _models(config: AblationOptions) -> dict[str, LoadedModel]:
    """Load the model that makes each row's features; one serves all rows that share them.

    Features are adapted in all rows or in none: else rows would differ in more than what they compare.
    """
    models = _models_as(config, config.adaptation)
    meant = {row.key for row in ABLATIONS[config.which] if row.modulation == "frozen"}
    frozen = [
        key for key, loaded in models.items() if loaded.model.config.adaptation == "none" and key not in meant
    ]
    if meant and (frozen or config.adaptation == "none"):
        raise BadInputError(
            f"the ablation {config.which} compares modulations: it needs adaptation weights, and --adaptation film"
        )
    if not frozen or config.adaptation == "none":
        return models
    if config.weights:
        raise BadInputError(
            f"weights were given for the row {', '.join(config.weights)}, but there are none for {', '.join(frozen)}: "
            "give those too, or --adaptation none"
        )
    return _models_as(config, "none")


def _models_as(config: AblationOptions, adaptation: str | None) -> dict[str, LoadedModel]:
    loaded: dict[tuple[str, str | None], LoadedModel] = {}
    models = {}
    for row in ABLATIONS[config.which]:
        weights = (config.weights or {}).get(row.key)
        if row.own_weights and (adaptation == "none" or not (weights or _are_shipped(row, config))):
            continue
        # Frozen features are the same whoever's they are.
        features = "simple" if adaptation == "none" and weights is None else row.features
        name = features if features in ("simple", "transductive") else row.model
        if (features, weights) not in loaded:
            own: dict[str, Any] = {"variant": row.variant, "metric": row.metric} if row.own_weights else {}
            frozen = row.modulation == "frozen"
            loaded[features, weights] = load(
                config,
                "none" if frozen else adaptation,
                name=name,
                weights=weights,
                **own,
                modulation=None if frozen else row.modulation,
            )
        models[row.key] = loaded[features, weights]
    return models


def _are_shipped(row: AblationRow, config: AblationOptions) -> bool:
    """Whether a row that needs weights of its own finds them in the installation."""
    backbone = config.backbone or DEFAULT_BACKBONE
    own = shipped(row.model, row.variant, backbone, row.metric)
    return config.backbone_weights == "auto" and own not in (None, shipped(row.model, None, backbone))
