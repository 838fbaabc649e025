"""A meta-training recipe: everything that decides which weights come out, in one TOML file."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

from cl_cnaps.data.catalog import known_set
from cl_cnaps.episodes import MetaDatasetConfig
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import FIT_RULES
from cl_cnaps.models.config import CnapsConfig, ModelName, refinement_bounds
from cl_cnaps.models.networks import DEFAULT_BACKBONE
from cl_cnaps.names import chosen_model
from cl_cnaps.paths import below
from cl_cnaps.recipes import checked, from_table, read_toml

HELD_OUT = ("mnist", "cifar10", "cifar100", "traffic_sign")
"""What the paper tests out of domain, and so no recipe trains on unless its `held_out` leaves it off."""


@dataclass(frozen=True)
class SourcePart:
    """One source of images: which of its classes are for training, which for validation."""

    name: str
    """As in `open_source`."""
    classes: Literal["splits", "spec", "fractions"] = "splits"
    """Where class splits come from: the source's own splits, an official dataset_spec.json, or a random deal."""
    train: str | None = None
    """The split to train on; none if not given. TRAIN, VALID, TEST where there is a spec or a deal."""
    validate: str | None = None
    """The split to validate on; none if not given."""
    test: str | None = None
    """The split to test on at the end, which decides nothing; none if not given."""
    weight: float = 1.0
    """Share of the training tasks, relative to the other sources."""
    min_images: int = 2
    """Classes with fewer images are left out."""
    grouped: bool = False
    """Draw the classes of a task from one group: of the spec, or else those whose names share a folder."""
    leave_out: tuple[str, ...] = ()
    """Classes that are neither trained nor validated on, such as those that a table tests under another split."""
    fractions: tuple[float, float, float] = (0.7, 0.15, 0.15)
    """How many classes are TRAIN, VALID and TEST when they are dealt out at random by the recipe's seed."""

    def __post_init__(self) -> None:
        used = [split for split in (self.train, self.validate, self.test) if split is not None]
        if not used:
            raise BadInputError(f"source {self.name} is used neither to train, nor to validate, nor to test")
        if len(set(used)) < len(used):
            raise BadInputError(f"source {self.name} uses one split for two of train, validate and test")
        if not 0 < self.weight < math.inf:
            raise BadInputError(f"source {self.name} has the weight {self.weight}; it must be positive")

    def as_json(self) -> dict[str, Any]:
        """The part as JSON holds it; without `test` where it is not tested on."""
        return {key: value for key, value in asdict(self).items() if key != "test" or value is not None}


@dataclass(frozen=True)
class RangeTasks:
    """Tasks whose way and shot are drawn uniformly from ranges."""

    ways: tuple[int, int] = (5, 10)
    shots: tuple[int, int] = (1, 10)
    queries: int = 8
    """Query images of each class."""

    def __post_init__(self) -> None:
        for name, least in (("ways", 2), ("shots", 1)):
            low, high = getattr(self, name)
            if not least <= low <= high:
                raise BadInputError(f"{name} are {low} to {high}: {least} <= first <= second is needed")
        if self.queries < 1:
            raise BadInputError(f"queries is {self.queries}; at least 1 is needed")


TaskShape = RangeTasks | MetaDatasetConfig
_SHAPES: Mapping[str, type[RangeTasks] | type[MetaDatasetConfig]] = {
    "ranges": RangeTasks,
    "meta-dataset": MetaDatasetConfig,
}


@dataclass(frozen=True)
class Augmentation:
    """What is done to all images of a training task alike; each share is of tasks."""

    low_resolution: int = 32
    low_resolution_share: float = 0.0
    """Shown at `low_resolution` pixels, as small photographs are."""
    invert_share: float = 0.0
    """Black for white; of tasks of grey sources, such as drawings and characters."""
    grey_share: float = 0.0
    rotate_share: float = 0.0
    """Turned by 90, 180 or 270 degrees; of tasks of grey sources."""
    look_share: float = 0.0
    """Under a look of a domain that no source is of: patches, noise, other colours, edges and more."""
    crop_share: float = 0.0
    """Each image cut to a part of its own and mirrored or not; of tasks of colour sources."""
    mixed_share: float = 0.0
    """Half of the classes are replaced by classes of another source; of training tasks alone."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name.endswith("_share") and not 0 <= value <= 1:
                raise BadInputError(f"{name} is {value}; a share is 0 to 1")
        if self.low_resolution < 4:
            raise BadInputError(f"low_resolution is {self.low_resolution}; at least 4 pixels are needed")


@dataclass(frozen=True)
class Optimisation:
    """How weights are learned: Adam on the mean query cross-entropy of the tasks of a step."""

    tasks: int
    """Tasks in all."""
    tasks_per_step: int = 16
    learning_rate: float = 5e-4
    warm_up_steps: int = 0
    """Steps over which the learning rate rises linearly to its value."""
    schedule: Literal["constant", "cosine"] = "constant"
    """cosine: falls to nothing at the last task."""
    film_regulariser: float = 0.001
    """Times the adaptation's regularisation, added for every task (not divided by the tasks of a step)."""
    learn: Literal["all", "head"] = "all"
    """head: only what comes after the features (CNAPS's generated classifier, the weights of fit-qda and fit-lda, the
    temperature); the features stay as they are, which takes a forward pass alone."""
    image_sizes: tuple[int, ...] = ()
    """Sides of the images that the backbone sees, one drawn for every step; by default the model's own."""
    image_size_weights: tuple[float, ...] = ()
    """How often each of them is drawn, relative to the others; by default equally often."""
    average: float = 0.0
    """Decay of an exponential average of the weights over steps, which is what is validated and kept; 0: none."""
    clip_norm: float | None = None
    """Largest norm of a step's gradient; larger ones are scaled down."""
    images_at_once: int | None = None
    """Bounds memory: networks see at most so many images at once and repeat their forward pass for the
    gradient, which is the same to rounding. By default a task is one piece."""
    activations_gb: float | None = None
    """Bounds memory likewise, by as many images at once as keep activations under so many gigabytes: a task that
    fits is one piece."""
    checkpoint_every: int = 1000
    """Tasks between two checkpoints."""

    def __post_init__(self) -> None:
        for name in ("tasks", "tasks_per_step", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise BadInputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.images_at_once is not None and self.images_at_once < 1:
            raise BadInputError(f"images_at_once is {self.images_at_once}; at least 1 is needed")
        if self.activations_gb is not None and (
            self.images_at_once is not None or not 0 < self.activations_gb < math.inf
        ):
            raise BadInputError("activations_gb must be positive, and images_at_once not given with it")
        if any(not 8 <= size <= 4096 for size in self.image_sizes):
            raise BadInputError(f"image_sizes are {list(self.image_sizes)}; each must be 8 to 4096 pixels")
        if self.image_size_weights and (
            len(self.image_size_weights) != len(self.image_sizes)
            or any(not 0 < weight < math.inf for weight in self.image_size_weights)
        ):
            raise BadInputError("image_size_weights must be positive, one for each of image_sizes")
        if not 0 <= self.average < 1:
            raise BadInputError(f"average is {self.average}; a decay is at least 0 and below 1")
        if not 0 < self.learning_rate < 1e38:
            raise BadInputError(
                f"learning_rate is {self.learning_rate}; it must be positive, and fit into 32 bits"
            )
        if min(self.warm_up_steps, self.film_regulariser) < 0 or (
            self.clip_norm is not None and self.clip_norm <= 0
        ):
            raise BadInputError(
                "warm_up_steps and film_regulariser must not be negative, clip_norm must be positive"
            )


@dataclass(frozen=True)
class Validation:
    """When and on what the weights are compared, with each other and with frozen features."""

    every: int
    """Tasks between two validations."""
    tasks: int = 100
    """Validation tasks of each source: the same ones every time."""
    patience: int = 3
    """Stop when adapted features were worse than frozen ones at so many validations in a row; 0: never."""
    image_sizes: tuple[int, ...] = ()
    """Sides of the images that the backbone sees, task after task in turn; by default the model's own."""
    augmented: bool = False
    """Whether validation tasks are augmented as training tasks are."""
    seed: int = 1

    def __post_init__(self) -> None:
        if self.every < 1 or self.tasks < 1 or self.patience < 0:
            raise BadInputError("validation needs every >= 1, tasks >= 1 and patience >= 0")
        if any(not 8 <= size <= 4096 for size in self.image_sizes):
            raise BadInputError(f"image_sizes are {list(self.image_sizes)}; each must be 8 to 4096 pixels")


@dataclass(frozen=True)
class Recipe:
    """One meta-training."""

    name: str
    """Names the folder of the run and, by default, the weights."""
    model: CnapsConfig
    sources: tuple[SourcePart, ...]
    training: Optimisation
    validation: Validation
    tasks: TaskShape = field(default_factory=RangeTasks)
    augmentation: Augmentation = field(default_factory=Augmentation)
    backbone_weights: str = "auto"
    start: str | None = None
    """Weight file, or name of weights, to begin from: all that has the same name and shape is taken over."""
    temperature: float | None = None
    """The learned temperature to begin with, in place of that of `start` or of a new model."""
    pack: bool = True
    """Decode and resize each source once, into a file in the cache folder."""
    held_out: tuple[str, ...] = HELD_OUT
    """Sources that must not be trained on."""
    test_tasks: int = 100
    """Test tasks of each source that has a split `test`, scored once, by the weights that are kept."""
    seed: int = 0

    def __post_init__(self) -> None:
        below(Path("--out"), self.name)
        names = [part.name for part in self.sources]
        if len(set(names)) != len(names):
            raise BadInputError(f"recipe {self.name}: a source is named twice: {', '.join(names)}")
        if not any(part.train for part in self.sources):
            raise BadInputError(f"recipe {self.name}: no source is trained on (key `train` of a source)")
        if not any(part.validate for part in self.sources):
            raise BadInputError(f"recipe {self.name}: no source is validated on (key `validate` of a source)")
        if self.test_tasks < 1:
            raise BadInputError(f"test_tasks is {self.test_tasks}; at least 1 is needed")
        held_out = {_canonical(name) for name in self.held_out}
        for part in self.sources:
            if part.train is not None and _canonical(part.name) in held_out:
                raise BadInputError(
                    f"recipe {self.name} trains on {part.name}, which is held out to be tested out of domain; "
                    "leave it out, or take it off `held_out`"
                )
        if self.temperature is not None and not (
            self.model.learned_temperature and 0 < self.temperature < math.inf
        ):
            raise BadInputError(
                f"recipe {self.name}: temperature is {self.temperature}; it must be positive, and the model's "
                "learned_temperature true"
            )
        if self.training.learn == "head" and not (
            self.model.model == "cnaps" or self.model.metric in FIT_RULES
        ):
            raise BadInputError(
                f"recipe {self.name} learns the head alone, but there is nothing to learn after the features of "
                f"{self.model.model} with the metric {self.model.metric}; cnaps, {' and '.join(sorted(FIT_RULES))} have"
            )
        if self.model.adaptation == "none":
            raise BadInputError(f"recipe {self.name}: a model without adaptation has nothing to train")

    def as_json(self) -> dict[str, Any]:
        """Return the whole recipe as JSON holds it.

        Tests at the end, and the shares of looks, crops and mixed tasks, are left out where there are none.
        """
        content = asdict(self)
        for share in ("look_share", "crop_share", "mixed_share"):
            if not content["augmentation"][share]:
                del content["augmentation"][share]
        if not any(part.test for part in self.sources):
            del content["test_tasks"]
        return {
            **content,
            "sources": [part.as_json() for part in self.sources],
            "model": self.model.as_json(),
            "tasks": {"sampler": shape_name(self.tasks), **asdict(self.tasks)},
        }


def read_recipe(path: Path) -> Recipe:
    """A recipe from its file."""
    return parse_recipe(read_toml(path), path.name, path.stem)


def parse_recipe(content: Mapping[str, Any], where: str, name: str) -> Recipe:
    """A recipe from the content of a TOML file; `name` is its name if the file gives none."""
    table: dict[str, Any] = {"name": name, **content}
    model, shape = dict(table.pop("model", {})), dict(table.pop("tasks", {}))
    # The usual configuration of the backbone, then the recipe's own settings.
    settings = checked(CnapsConfig, model, f"{where}: model")
    model_name = cast(ModelName, chosen_model(settings.get("model"), settings.get("variant")))
    usual = CnapsConfig.for_backbone(model_name, settings.get("backbone", DEFAULT_BACKBONE))
    config = replace(usual, **settings)
    sampler = shape.pop("sampler", "ranges")
    if sampler not in _SHAPES:
        raise BadInputError(f"{where}: tasks.sampler must be one of {', '.join(_SHAPES)}, got {sampler!r}")
    tasks = from_table(_SHAPES[sampler], shape, f"{where}: tasks")
    return Recipe(model=config, tasks=tasks, **checked(Recipe, table, where, elsewhere=("model", "tasks")))


def shape_name(shape: TaskShape) -> str:
    """Return the name that a recipe has for these tasks' `sampler`."""
    return next(name for name, kind in _SHAPES.items() if isinstance(shape, kind))


def _canonical(name: str) -> str:
    known = known_set(name)
    return known.name if known is not None else name


def read_changed_recipe(path: Path, changes: Mapping[str, Any]) -> Recipe:
    """The recipe in a file, with changes by the names of options; None is no change.

    Changed settings of the model become part of the recipe's name: its run has a folder, and its weights a name, of
    their own.
    """
    content, given = read_toml(path), {key: value for key, value in changes.items() if value is not None}
    plain = parse_recipe(content, path.name, path.stem)
    bounds = ("refine_min", "refine_max")
    names = [one.name for one in fields(CnapsConfig) if one.name not in bounds]
    settings: dict[str, Any] = {key: given.pop(key) for key in names if key in given}
    chosen = tuple(settings)
    recipe = _with_settings(content, settings, path)
    model = recipe.model
    least, most = (given.pop(key, None) for key in bounds)
    for key in ("responsibilities", *bounds):
        if changes.get(key) is not None and not model.refines:
            raise BadInputError(
                f"--{key.replace('_', '-')} is for models that refine, not for "
                f"{model.model if model.variant == 'plain' else model.variant}"
            )
    if (least, most) != (None, None):
        least, most = refinement_bounds(least, most, (model.refine_min, model.refine_max))
        settings |= {"refine_min": least, "refine_max": most}
        recipe = _with_settings(content, settings, path)
    if (tasks := given.pop("tasks", None)) is not None:
        recipe = replace(recipe, training=replace(recipe.training, tasks=tasks))
    name = "-".join((recipe.name, *_differences(plain.model, recipe.model, chosen)))
    return replace(recipe, name=name, **given)


def _with_settings(content: Mapping[str, Any], settings: Mapping[str, Any], path: Path) -> Recipe:
    """Read anew, since a variant may decide the model, and the model what is usual."""
    changed = {**content, "model": {**content.get("model", {}), **settings}}
    return parse_recipe(changed, path.name, path.stem)


def _differences(plain: CnapsConfig, changed: CnapsConfig, given: Collection[str]) -> list[str]:
    """Return the given settings that have changed, and the bounds of refinement."""
    words = [str(getattr(changed, key)) for key in given if getattr(changed, key) != getattr(plain, key)]
    least, most = changed.refine_min, changed.refine_max
    if (least, most) != (plain.refine_min, plain.refine_max):
        words.append(f"refine-{least}-{most}")
    return words
