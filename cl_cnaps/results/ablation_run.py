"""From what is asked of an ablation to its record: nothing embedded twice, nothing measured that is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cl_cnaps.data.source import total
from cl_cnaps.errors import BadInputError
from cl_cnaps.evaluation.ablations import ABLATIONS, Method, check_rows, methods_of, targets_of, usual_steps
from cl_cnaps.evaluation.run import Outcome, run_methods, with_packed_images
from cl_cnaps.evaluation.targets import Target, TargetSet
from cl_cnaps.evaluation.workers import Workers, usable_cores
from cl_cnaps.models.backbones import DEFAULT_BACKBONE
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.loading import LoadedModel, load_model, shipped
from cl_cnaps.results.ablation import (
    VERB,
    AblationRecord,
    Cell,
    MethodCells,
    method_config,
    write_ablation_record,
)
from cl_cnaps.results.ablation_reuse import Measured, already_measured, measured_under
from cl_cnaps.results.few_shot import Result, episode_rows, few_shot_entry
from cl_cnaps.results.few_shot_recall import recall_rows
from cl_cnaps.results.few_shot_run import Watch
from cl_cnaps.results.journal import Journal
from cl_cnaps.results.record import find_record, record_path


@dataclass(frozen=True)
class AblationRun:
    """Everything an ablation is asked for."""

    which: str
    sources: tuple[str, ...] = ()
    """Data sets of Meta-Dataset, or for `queries` any sources; all there are, or mini-ImageNet, if none is named."""
    specs: Path | None = None
    tasks: int = 600
    seed: int = 0
    adaptation: Literal["film", "none"] | None = None
    backbone: str | None = None
    backbone_weights: str = "auto"
    weights: Mapping[str, str] = field(default_factory=dict)
    """Weights of single rows, by their keys."""
    image_size: int | None = None
    device: str = "auto"


def run_ablation(
    asked: AblationRun,
    out: Path,
    *,
    workers: int | None,
    resume: bool,
    watch: Watch,
    keep: Path | None = None,
) -> AblationRecord:
    """Run an ablation and write its record.

    Cells that an evaluation or another ablation under `out` has measured on the same tasks are taken from its record.
    With `resume`, so are the data sets that a killed run had finished, and a finished record of the same configuration
    as a whole.
    Features of adapted tasks are found and left in the folder `keep`, if there is one.
    """
    return prepare_ablation(asked).run(out, workers=workers, resume=resume, watch=watch, keep=keep)


def prepare_ablation(asked: AblationRun) -> PreparedAblation:
    """Open the data sets and load the models, so that all that decides the numbers is known."""
    if asked.which not in ABLATIONS:
        raise BadInputError(f"there is no ablation {asked.which!r}; there are {', '.join(ABLATIONS)}")
    check_rows(asked.which, asked.weights)
    targets = targets_of(asked.which, asked.sources, asked.specs)
    models = _load(asked)
    usual = usual_steps(targets)
    parts = [
        MethodCells(method, method.config(models[method.key].model.config, usual), models[method.key], [])
        for method in methods_of(asked.which, models, asked.weights, _adaptation(models))
    ]
    return PreparedAblation(asked, targets, parts, _config(asked, targets, parts))


@dataclass(frozen=True)
class PreparedAblation:
    """An ablation that is ready to run, once."""

    asked: AblationRun
    targets: Sequence[Target]
    parts: Sequence[MethodCells]
    config: Mapping[str, Any]

    def place(self, out: Path) -> Path:
        """Where its record is, or will be."""
        return record_path(out, VERB, self.asked.which, self.config)

    def run(
        self, out: Path, *, workers: int | None, resume: bool, watch: Watch, keep: Path | None = None
    ) -> AblationRecord:
        """As `run_ablation`."""
        asked, targets, parts = self.asked, self.targets, self.parts
        journal = Journal(out, VERB, asked.which, self.config, resume=resume)
        if resume and not journal.finished and (done := find_record(out, VERB, asked.which, self.config)):
            return AblationRecord(done)
        known = measured_under(out, recall=asked.which == "shots")
        for features in _sharing(parts):
            model = features[0].loaded.model
            count = workers if workers is not None else usable_cores() if model.device.type == "cpu" else 0
            with Workers(model, count) as pool:
                for target in targets:
                    for of in target.sets:
                        _measure(asked, target, of, features, pool, known, journal, watch, keep)
        return write_ablation_record(
            out,
            asked.which,
            self.config,
            parts,
            missing=[asdict(one) for target in targets for one in target.missing],
            environment_extra={
                "seed": asked.seed,
                "data_digests": {one.name: one.tasks_of.images.digest() for t in targets for one in t.sets},
                "weights_digests": {of.method.key: of.loaded.weights_digest for of in parts},
                "backbone_digest": parts[0].loaded.model.backbone.digest(),
            },
        )


def _measure(
    asked: AblationRun,
    target: Target,
    of: TargetSet,
    methods: Sequence[MethodCells],
    pool: Workers,
    known: Sequence[Measured],
    journal: Journal,
    watch: Watch,
    keep: Path | None,
) -> None:
    """Add the cells of one data set to methods that share features."""
    cells: dict[tuple[str, int], Cell] = {}
    for method in methods:
        for place in range(len(target.shapes)):
            if cell := already_measured(known, target, of, place, method, tasks=asked.tasks, seed=asked.seed):
                cells[method.method.key, place] = cell
    left = [m for m in methods if any((m.method.key, i) not in cells for i in range(len(target.shapes)))]
    if left:
        unit = f"{left[0].loaded.weights_digest} {left[0].method.features} {of.name}"
        stored = journal.finished.get(unit)
        if stored is None:
            made = _run(asked, target, of, left, pool, watch, keep)
            stored = journal.add(unit, [[*place, asdict(cell)] for place, cell in made.items()])
        cells = {(key, place): Cell(**cell) for key, place, cell in stored} | cells
    for method in methods:
        method.cells.extend(cells[method.method.key, place] for place in range(len(target.shapes)))


def _run(
    asked: AblationRun,
    target: Target,
    of: TargetSet,
    methods: Sequence[MethodCells],
    pool: Workers,
    watch: Watch,
    keep: Path | None,
) -> dict[tuple[str, int], Cell]:
    loaded = methods[0].loaded
    with watch.reading(of.title, total(of.tasks_of.images)) as read:
        images = with_packed_images(of.tasks_of, loaded.model.backbone.info.image_size, read)
    found = {}
    with watch.tasks(of.title, asked.tasks * len(target.shapes)) as progress:
        every = run_methods(
            pool,
            [method.config for method in methods],
            of.tasks_of,
            images,
            target.shapes,
            tasks=asked.tasks,
            seed=asked.seed,
            progress=progress,
            keep=keep,
        )
        for place, outcomes in enumerate(every):
            for method, outcome in zip(methods, outcomes, strict=True):
                found[method.method.key, place] = _cell(target, of, outcome, method, asked.seed)
    return found


def _cell(target: Target, of: TargetSet, outcome: Outcome, method: MethodCells, seed: int) -> Cell:
    result = Result(of, outcome)
    entry = few_shot_entry(target.name, result, method.loaded, seed, method.config)
    return Cell(entry, list(episode_rows([result])), list(recall_rows([(of.name, outcome)])), None)


def _load(asked: AblationRun) -> dict[str, LoadedModel]:
    """The model that makes each method's features; one model serves all methods that share them.

    Features are adapted in all rows or in none: else rows would differ in more than what they compare.
    """
    models = _load_as(asked, asked.adaptation)
    frozen = [key for key, loaded in models.items() if loaded.model.config.adaptation == "none"]
    if not frozen or asked.adaptation == "none":
        return models
    if asked.weights:
        raise BadInputError(
            f"weights were given for the row {', '.join(asked.weights)}, but there are none for {', '.join(frozen)}: "
            "give those too, or --adaptation none"
        )
    return _load_as(asked, "none")


def _load_as(asked: AblationRun, adaptation: Literal["film", "none"] | None) -> dict[str, LoadedModel]:
    loaded: dict[tuple[str, str | None], LoadedModel] = {}
    models = {}
    for method in ABLATIONS[asked.which]:
        weights = asked.weights.get(method.key)
        if method.own_weights and (adaptation == "none" or not (weights or _are_shipped(method, asked))):
            continue
        # Frozen features are the same whoever's they are.
        features = "simple" if adaptation == "none" and weights is None else method.features
        name = features if features in ("simple", "transductive") else method.model
        if (features, weights) not in loaded:
            loaded[features, weights] = load_model(
                name,  # type: ignore[arg-type]
                backbone=asked.backbone,
                backbone_weights=asked.backbone_weights,
                weights=weights,
                adaptation=adaptation,
                image_size=asked.image_size,
                seed=asked.seed,
                device=asked.device,
                variant=method.variant if method.own_weights else None,
            )
        models[method.key] = loaded[features, weights]
    return models


def _are_shipped(method: Method, asked: AblationRun) -> bool:
    """Whether a method that needs weights of its own finds them in the installation."""
    backbone = asked.backbone or DEFAULT_BACKBONE
    return asked.backbone_weights == "auto" and shipped(method.model, method.variant, backbone) is not None


def _adaptation(models: Mapping[str, LoadedModel]) -> str:
    return next(iter(models.values())).model.config.adaptation


def _sharing(parts: Sequence[MethodCells]) -> list[list[MethodCells]]:
    """Methods by the model that makes their features."""
    groups: dict[int, list[MethodCells]] = {}
    for part in parts:
        groups.setdefault(id(part.loaded), []).append(part)
    return list(groups.values())


def _config(asked: AblationRun, targets: Sequence[Target], parts: Sequence[MethodCells]) -> dict[str, Any]:
    """What the record's id is made from: everything that decides a number, resolved; nothing else."""
    model: CnapsConfig = parts[0].config
    return {
        "ablation": asked.which,
        "backbone": model.backbone,
        "backbone_digest": parts[0].loaded.model.backbone.digest(),
        "image_size": model.image_size,
        "adaptation": model.adaptation,
        "normaliser": model.normaliser,
        "rows": [method_config(of.method, of.config, of.loaded.weights_digest) for of in parts],
        "tasks": asked.tasks,
        "seed": asked.seed,
        "targets": [
            {
                "target": target.name,
                "shapes": [asdict(shape) for shape in target.shapes],
                "data_sets": {
                    one.name: {"classes": one.tasks_of.chosen, "digest": one.tasks_of.images.digest()}
                    for one in target.sets
                },
            }
            for target in targets
        ],
    }
