"""What an experiment is, and how one is carried out: `execute`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from cl_cnaps.data import Source
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments import Progress
from cl_cnaps.experiments.options import SETTINGS, ModelOptions
from cl_cnaps.models.config import CnapsConfig, refinement_bounds
from cl_cnaps.models.loading import LoadedModel, features_model, load_model, resolve_device
from cl_cnaps.records.environment import describe_environment
from cl_cnaps.records.record import Journal, Record, find_record, record_path, write_record
from cl_cnaps.torch_setup import usable_cores

if TYPE_CHECKING:
    from cl_cnaps.data.feature_files import FeatureSource

Row = dict[str, Any]
"""Names and values; one line of `--json`, one row of a table."""


@dataclass(frozen=True)
class Unit:
    """An independent piece of an experiment that a resumed run need not repeat."""

    key: str
    steps: int
    """How far a progress bar moves."""


@dataclass(frozen=True)
class Context:
    """How an experiment is run; decides no number."""

    out: Path
    """Folder of records."""
    workers: int
    """Processes that share the work; 0 for this one alone."""
    progress: Progress


@dataclass(frozen=True)
class Summary:
    """What a record is made of, beside its identity."""

    rows: Sequence[Row]
    """The numbers that the experiment is for."""
    tables: Mapping[str, Iterable[Mapping[str, Any]]]
    """The raw numbers: name of the CSV file -> rows."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else summary.json holds."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Seeds, and digests of data and weights."""


class Experiment(ABC):
    """An experiment with its data open and its model loaded, so that everything that decides a number is known."""

    verb: ClassVar[str]
    Config: ClassVar[type[ModelOptions]]
    in_step: ClassVar[bool] = False
    """Whether experiments of one command take turns, unit by unit, because they share what a unit needs."""

    @classmethod
    @abstractmethod
    def prepare(cls, config: Any, *, download: bool = True, keep: Path | None = None) -> list[Self]:
        """Open the data and load the model; several experiments where one option names several values.

        `keep` is a folder where features are kept and found.
        """

    @property
    @abstractmethod
    def name(self) -> str:
        """The folder that its records are kept in."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A few words for the progress bar."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """Everything that decides a number, resolved, and nothing else: the record's id is a digest of it."""

    @property
    def device_type(self) -> str:
        """`cpu`, `cuda`, ..."""
        return "cpu"

    @property
    def preface(self) -> Sequence[str]:
        """What a person should read before it runs, such as which data is not there; decides no number."""
        return ()

    @abstractmethod
    def units(self) -> list[Unit]:
        """Return the pieces of the experiment, in order."""

    @abstractmethod
    def run(self, units: Sequence[Unit], context: Context) -> Iterator[tuple[Unit, Any]]:
        """Yield each unit with its result, as JSON holds it; nothing but seconds depends on the number of workers."""

    @abstractmethod
    def summarise(self, results: Sequence[Any]) -> Summary:
        """Compute the summary from the results of all units, in their order."""

    def record_path(self, out: Path) -> Path:
        """Return the folder where its record is, or will be."""
        return record_path(out, self.verb, self.name, self.identity)


@dataclass(frozen=True)
class _Labelled(Progress):
    """Progress of one of several experiments."""

    progress: Progress
    label: str

    def begin(self, title: str, total: int, done: int = 0) -> None:
        self.progress.begin(title, total, done)

    def show(self, state: str, advance: int = 0) -> None:
        self.progress.show(f"{self.label}: {state}", advance)

    def line(self, text: str) -> None:
        self.progress.line(f"{self.label}: {text}")


class _Execution:
    """An experiment on its way to its record."""

    def __init__(self, experiment: Experiment, out: Path, *, resume: bool, workers: int | None) -> None:
        self.experiment, self.out = experiment, out
        verb, name, identity = experiment.verb, experiment.name, experiment.identity
        self._journal = Journal(out, verb, name, identity, resume=resume)
        self._units = experiment.units()
        finished = self._journal.finished
        self._record = find_record(out, verb, name, identity) if resume and not finished else None
        self.left = [] if self._record else [unit for unit in self._units if unit.key not in finished]
        self.total = sum(unit.steps for unit in self._units)
        self.done = self.total - sum(unit.steps for unit in self.left)
        if workers is None:
            workers = usable_cores() if experiment.device_type == "cpu" else 0
        self._workers = workers

    def run(self, units: Sequence[Unit], progress: Progress) -> None:
        """Run some of the units that are left."""
        for unit, result in self.experiment.run(units, Context(self.out, self._workers, progress)):
            self._journal.add(unit.key, result)

    def record(self) -> Record:
        """Write the record, now that all units are finished; one that was there before is returned."""
        if self._record is not None:
            return self._record
        experiment = self.experiment
        summary = experiment.summarise([self._journal.finished[unit.key] for unit in self._units])
        return write_record(
            self.out,
            experiment.verb,
            experiment.name,
            experiment.identity,
            environment=describe_environment({**summary.environment, "workers": self._workers}),
            tables=summary.tables,
            summary={
                "verb": experiment.verb,
                "name": experiment.name,
                "id": experiment.record_path(self.out).name,
                "rows": list(summary.rows),
                **summary.facts,
            },
        )


def execute(
    experiments: Sequence[Experiment],
    out: Path,
    *,
    resume: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """Run the experiments of one command and write their records under `out`; those of the same identity are replaced.

    Some kinds take turns after each unit (`in_step`). With `resume`, units that a killed run had finished are taken
    from its journal, and a finished record is returned as it is. `workers` are processes that share the work, 0 for
    this one alone; None: one for each core, with a GPU 0.
    """
    progress = progress or Progress()
    if len(experiments) == 1 or not experiments[0].in_step:
        records = []
        for experiment in experiments:
            one = _Execution(experiment, out, resume=resume, workers=workers)
            progress.begin(experiment.title, one.total, one.done)
            if one.left:
                one.run(one.left, progress)
            records.append(one.record())
        return records
    every = [_Execution(experiment, out, resume=resume, workers=workers) for experiment in experiments]
    progress.begin(
        f"{len(every)} {experiments[0].verb}s",
        sum(one.total for one in every),
        sum(one.done for one in every),
    )
    for unit in dict.fromkeys(unit for one in every for unit in one.left):
        for one in every:
            if unit in one.left:
                one.run([unit], _Labelled(progress, one.experiment.title))
    return [one.record() for one in every]


def load(
    config: ModelOptions,
    adaptation: Any,
    usual: tuple[int, int] | None = None,
    *,
    features: FeatureSource | None = None,
    **changes: Any,
) -> LoadedModel:
    """Load the model that a config names; `usual` are the steps of refinement where none are given.

    With `features`, make one that classifies these.
    """
    bounds: dict[str, Any] = {}
    if usual is not None or (config.refine_min, config.refine_max) != (None, None):
        least, most = refinement_bounds(config.refine_min, config.refine_max, usual or (2, 4))  # type: ignore[arg-type]
        bounds = {"refine_min": least, "refine_max": most}
    if features is not None:
        return _on_features(config, features, bounds)
    given = {
        "name": config.model,
        "backbone": config.backbone,
        "backbone_weights": config.backbone_weights,
        "weights": config.weights,
        "image_size": config.image_size,
        "seed": config.seed,
        "device": config.device,
    }
    return load_model(adaptation=adaptation, **{**given, **config.settings, **bounds, **changes})


def given_features(sources: Sequence[Source]) -> FeatureSource | None:
    """Return the first source if all hold features of one network; None if all hold images."""
    if all(source.feature_width is None for source in sources):
        return None
    from cl_cnaps.data import feature_files

    return feature_files.given_features(sources)


def _on_features(config: ModelOptions, source: FeatureSource, bounds: Mapping[str, Any]) -> LoadedModel:
    """Make a model of given features, refusing options that are for images."""
    no_network = {
        "backbone": None,
        "backbone_weights": "auto",
        "weights": None,
        "image_size": None,
        "modulation": None,
    }
    refused = [name for name, unset in no_network.items() if getattr(config, name) != unset]
    if config.adaptation not in (None, "none"):
        refused.append("adaptation")
    if refused:
        raise BadInputError(
            f"{source.path} holds features, which no network changes any more: leave --{refused[0].replace('_', '-')} "
            "out"
        )
    model = features_model(
        config.model_name,
        source.feature_width,
        backbone=source.backbone,
        backbone_digest=source.backbone_digest,
        weights_source=source.backbone_weights,
        pretraining=source.pretraining,
        **config.settings,
        **bounds,
    )
    device = resolve_device(config.device)
    return LoadedModel(model.float().to(device), "no adaptation: features as given", None)


def model_row(config: CnapsConfig) -> Row:
    """Return what every row has of a model: its name, backbone, adaptation and declared settings."""
    return {
        "model": config.model,
        "backbone": config.backbone,
        "adaptation": config.adaptation,
        **{name: getattr(config, name) for name in SETTINGS},
    }
