"""The options of every experiment, each declared once; imports no PyTorch.

A field made with `option` is a command-line option, a key of recipes and, once resolved, part of a record's identity.
The model's options are shared by all experiments. To add one: declare it in `ModelOptions` with `setting=True`, and
give `CnapsConfig` a field of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from cl_cnaps.names import (
    ABLATIONS,
    BASELINES,
    BENCHMARKS,
    CNAPS_MODELS,
    COVARIANCES,
    ENCODINGS,
    MEASURES,
    METRICS,
    MODULATIONS,
    RESPONSIBILITIES,
    STRATEGIES,
    VARIANTS,
    chosen_model,
)

MOST = 1_000_000
"""Largest whole number that an option takes: of runs, tasks, images or processes, more were never meant."""
MOST_SEED = 2**32 - 1
"""Largest seed: one word of those that generators are made from."""


@dataclass(frozen=True)
class Option:
    """How a field is given on the command line, and what it is called in tables."""

    help: str
    type: type = str
    choices: tuple[str, ...] = ()
    registered: str | None = None
    """MODULE:NAME of a function or mapping of the names that were added in Python; they count as choices."""
    also: tuple[str, ...] = ()
    """Words that are taken beside numbers."""
    least: float | None = None
    most: float | None = None
    metavar: str | None = None
    default: str | None = None
    """The default in words, where it is not a value."""
    form: Literal["one", "list", "pairs"] = "one"
    """list: several values with commas; pairs: NAME=VALUE, may be given again."""
    flag: str | None = None
    """The name on the command line, if it is not the field's."""
    argument: bool = False
    """Whether it is positional."""
    setting: bool = False
    """Whether it is a setting of the model: a field of `CnapsConfig`, and part of every label where it is not usual."""
    usual: tuple[Any, ...] = (None,)
    """Values that labels leave out."""
    label: Callable[[Any], str] | None = None
    """The value in words; `NAME VALUE` by default."""


def option(help: str, *, default: Any = None, shown: str | None = None, **more: Any) -> Any:
    """Declare a field; `shown` is its default in words."""
    return field(default=default, metadata={"option": Option(help, default=shown, **more)})


def number(help: str, *, least: int = 1, **more: Any) -> Any:
    """Declare a field that is a whole number."""
    return option(help, type=int, least=least, **more)


def options_of(config: type) -> dict[str, tuple[Field[Any], Option]]:
    """Return the options of an experiment by field name: its own first, then those all experiments share."""
    every = {one.name: (one, one.metadata["option"]) for one in fields(config) if "option" in one.metadata}
    shared = {one.name for one in fields(ModelOptions)}
    return dict(sorted(every.items(), key=lambda item: item[0] in shared))


def option_name(name: str, declared: Option) -> str:
    """Return an option's name on the command line and in recipes, without dashes in front."""
    return declared.flag or name.replace("_", "-")


_VARIANTS_HELP = "; ".join(f"{name}: {info.model}, {info.meaning}" for name, info in VARIANTS.items()) + "."


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model, on which backbone, with which weights and settings. None is the default of the model."""

    model: str | None = option(
        "Simple CNAPS, Transductive CNAPS, CNAPS, or prototypes with Euclidean distance.",
        choices=tuple(CNAPS_MODELS),
        shown="simple, or that of --variant",
    )
    adaptation: str | None = option(
        "film: features adapted to each task; none: frozen features.",
        choices=("film", "none"),
        shown="film if there are weights for it, else none",
    )
    backbone: str | None = option(
        "efficientnet-lite0, -lite1 or -lite2, resnet18 (the paper's) or timm:NAME.",
        shown="efficientnet-lite0",
    )
    backbone_weights: str = option(
        "The backbone's own weights (auto), timm's fetched now (download), random ones, or a state dict.",
        default="auto",
        metavar="auto|download|random|FILE",
    )
    weights: Any = option(
        "Adaptation weights (see `weights list`).",
        metavar="NAME|FILE|none",
        shown="those shipped for the model, if any",
    )
    image_size: int | None = number("Input side in pixels.", least=16, most=4096, shown="the backbone's")
    metric: str | None = option(
        "Distance to the classes (simple): squared Mahalanobis, its root, squared L2, L1, cosine, negative dot "
        "product.",
        choices=tuple(METRICS),
        registered="gaussian:metric_names",
        shown="that of the weights, else mahalanobis",
        setting=True,
        usual=(None, "mahalanobis"),
        label=lambda metric: METRICS.get(metric, metric),
    )
    variant: str | None = option(
        _VARIANTS_HELP,
        choices=("plain", *VARIANTS),
        shown="that of the weights, else plain",
        setting=True,
        usual=(None, "plain"),
        label=lambda variant: VARIANTS[variant].title,
    )
    responsibilities: str | None = option(
        "Of queries in the refinement (transductive): softmax of raw logits, or of logits over the temperature "
        "(calibrated). auto: calibrated where the queries are of all classes that compete, but raw for Transductive+.",
        choices=RESPONSIBILITIES,
        shown="auto",
        setting=True,
        usual=(None, "auto"),
        label=lambda kind: f"{kind} responsibilities",
    )
    modulation: str | None = option(
        "FiLM from the task's own encoding, from one for all tasks (static), or from a foreign domain's (swapped).",
        choices=MODULATIONS,
        shown="own",
        setting=True,
        usual=(None, "own"),
        label=lambda kind: f"{kind} modulation",
    )
    refine_min: int | None = number("Least steps of refinement (transductive).", least=0, shown="2")
    refine_max: int | str | None = number(
        "Most steps of refinement (transductive); 0: none.",
        least=0,
        also=("unbounded",),
        shown="4; evaluate mini-, tiered-imagenet: 10",
    )
    seed: int = number("Decides every random draw.", default=0, least=0, most=MOST_SEED)
    device: str = option("auto, cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.", default="auto")

    @property
    def model_name(self) -> str:
        """The model that is meant: the one given, else that of the variant, else simple."""
        return chosen_model(self.model, self.variant)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the model that were given, by their names in `CnapsConfig`."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}


SETTINGS = tuple(name for name, (_, declared) in options_of(ModelOptions).items() if declared.setting)
"""The options that are settings of the model: fields of `CnapsConfig`."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions(ModelOptions):
    """How many few-shot tasks, and which classes they are of."""

    tasks: int = number("Tasks of each data set.", default=600)
    specs: Path | None = option(
        "Folder of official Meta-Dataset specifications (NAME_dataset_spec.json), for which classes are for testing; "
        "not for mini- and tiered-imagenet, which have test splits. Else $CL_CNAPS_SPECS, if it is set.",
        type=Path,
    )


@dataclass(frozen=True, kw_only=True)
class StreamOptions(ModelOptions):
    """What a stream experiment is given. None is the default of the model or benchmark."""

    benchmark: str = option(
        f"{', '.join(BENCHMARKS)}; SOURCE:B50-Inc10 as class-incremental papers split it; domains:SOURCE,SOURCE with "
        "the same classes; mixed:SOURCE,SOURCE with a source a task; folder:PATH for your own images (a folder or zip "
        "with one folder per class), features:FILE, or the name of any source that `data list` shows.",
        default="split-mnist",
    )
    model: str | tuple[str, ...] | None = option(  # type: ignore[assignment]
        f"Models, compared on the same images: {', '.join(CNAPS_MODELS)} (Euclidean distance on the same features); "
        f"baselines: {', '.join(BASELINES)}. Options apply to the models that have them.",
        choices=(*CNAPS_MODELS, *BASELINES),
        registered="continual.baselines:BASELINES",
        form="list",
        shown="simple, or that of --variant",
    )
    encoding: str | None = option(
        "Which task encoding adapts the features: the latest task's, the first's for ever, or their running mean. "
        "Baselines have none.",
        choices=(*ENCODINGS, "all"),
        registered="continual.encodings:ENCODINGS",
        shown="first",
    )
    head: str = option(
        "single: all classes seen so far compete. multi: only those of the query's task.",
        default="all",
        choices=("single", "multi", "all"),
    )
    shots: int | str | None = number(
        "Labelled images per class, or all.", also=("all",), shown="the benchmark's, 100"
    )
    base_shots: int | str | None = number("The same in the first task.", also=("all",), shown="as --shots")
    queries: int | None = number("Test images per class.", shown="100, or as many as there are")
    runs: int = number("Each with new images.", default=5)
    classes_per_task: tuple[int, ...] | None = number(
        "Split the classes into tasks of this size, the last with what is left; or the sizes of all tasks: 50,10,10.",
        form="list",
        metavar="N|N,N,...",
    )
    base_classes: int = number("Classes of the first task, if it differs.", default=0, least=0)
    class_order: str | None = option(
        "seed:1993 for the order of published tables, a file with one class a line, or names with commas; classes "
        "that are not named are left out."
    )
    repeat: int = number(
        "Earlier classes that come back in every later task, with new images.", default=0, least=0
    )
    batch: int | None = number(
        "Online: learn each task in batches of so many images, each seen once.", shown="whole tasks"
    )
    lists: str | None = option(
        "fscil-*: folder of the published image lists (session_2.txt, ...).", metavar="FOLDER"
    )
    shuffle_classes: int | None = number(
        "Learn the classes in a random order.", least=0, most=MOST_SEED, metavar="SEED"
    )
    covariance: str | None = option(
        "The shared part of a class's covariance is of all classes seen, or of those that came in its task (the "
        "paper's equations). Baselines have none.",
        choices=COVARIANCES,
        shown="seen",
    )
    memory_rank: int | None = number(
        "Most directions kept of a class's scatter; the rest is shared by all classes, with the same trace.",
        shown="all",
    )
    shortlist: int | None = number(
        "Classes that are scored exactly for a query: those with the nearest means. For very many classes.",
        shown="all",
    )
    query_scope: str = option(
        "Transductive, single head: refine on the queries of one task, or of all tasks seen.",
        default="task",
        choices=("task", "stream"),
    )
    baseline_on: str | None = option(
        "Baselines: train on the backbone's features, or a small network from scratch.",
        choices=("features", "network"),
    )
    features: str | None = option(
        "Those of the frozen backbone; or adapted: as Simple CNAPS adapts them to the first task, and for a CNAPS "
        "model as --adaptation film.",
        choices=("frozen", "adapted"),
        shown="baselines frozen, CNAPS models as --adaptation",
    )
    metrics: tuple[str, ...] | None = option(
        f"Columns of the table, in this order: {', '.join(MEASURES)}. Records have all of them.",
        choices=tuple(MEASURES),
        form="list",
        shown="those that fit 80 characters",
    )


@dataclass(frozen=True, kw_only=True)
class FewShotOptions(TaskOptions):
    """What an evaluation is given. None is the default of the model or target."""

    target: str | None = option(
        "", argument=True, shown="meta-dataset; without its data sets glyphs and mnist"
    )
    ways: tuple[int, ...] | None = number("Classes of a task.", form="list", shown="5; mini, tiered: 5,10")
    shots: tuple[int, ...] | None = number(
        "Support images of each class.", form="list", shown="5; mini, tiered: 1,5"
    )
    queries: int | None = number("Query images of each class.", shown="10")
    variable: bool = option(
        "Ways and shots as Meta-Dataset draws them, new for every task.", default=False, type=bool
    )
    vary_queries: tuple[int, ...] | None = number(
        "Repeat with each of these numbers of queries, on the same tasks; draws accuracy against them.",
        form="list",
    )


@dataclass(frozen=True, kw_only=True)
class ActiveOptions(ModelOptions):
    """What active learning is given. None is the default of the model or source."""

    source: str | None = option(
        "cifar10, omniglot or glyphs (a task per alphabet that is for testing), any source that `data list` shows, or "
        "folder:PATH for your own images (a folder or zip with one folder per class), or features:FILE.",
        shown="cifar10; where it is not there mnist",
    )
    strategies: tuple[str, ...] | None = option(
        f"{', '.join(STRATEGIES)}, or several with commas.",
        flag="strategy",
        form="list",
        shown="all three",
    )
    adaptation: str | None = option(
        "film: features adapted anew after each round; none: frozen features (the paper's FFE).",
        choices=("film", "none", "both"),
        shown="both if there are weights for film, else none",
    )
    alphabets: tuple[str, ...] | None = option(
        "Omniglot: which alphabets.",
        flag="alphabet",
        form="list",
        metavar="all|NAME,NAME,...",
        shown="Angelic and Atemayar_Qelisayer; with --paper all",
    )
    paper: bool = option(
        "The paper's protocol in full in place of a short one; hours, with adaptation.",
        default=False,
        type=bool,
    )
    initial: int | None = number("Labelled images per class at the start.", shown="5")
    per_round: int | None = number(
        "Labels requested at a time.", shown="25; omniglot: 1; other sources: one for every two classes"
    )
    rounds: int | None = number(
        "How often labels are requested; a curve has one point more.", shown="cifar10 5, else 9; --paper: 29"
    )
    runs: int | None = number("Each with new images.", shown="4; --paper: cifar10 10, omniglot 30")
    pool: int | None = number(
        "Unlabelled images per class.",
        shown="50, or as many as there are; omniglot: 10; cifar10 --paper: all",
    )
    test: int | None = number(
        "Test images per class.", shown="50, or as many as there are; omniglot: 5; cifar10 --paper: all"
    )
    query_set: int | None = number("Most images that are refined together (transductive).", shown="1000")
    reach: float | None = option(
        "Accuracy, as a fraction of 1, to count the labels for.",
        type=float,
        least=0,
        most=1,
        shown="what random ends with",
    )


@dataclass(frozen=True, kw_only=True)
class AblationOptions(TaskOptions):
    """What an ablation is given."""

    which: str = option("", argument=True, default="", choices=tuple(ABLATIONS))
    sources: tuple[str, ...] | None = option(
        "Some data sets of Meta-Dataset, such as omniglot,dtd, and glyphs; for `queries` any sources.",
        form="list",
        shown="all that are there; queries: mini-imagenet; without data mnist and glyphs",
    )
    weights: Mapping[str, str] | None = option(
        "Adaptation weights of one row (a key of --json, such as plus or root-riemannian); may be given several "
        "times.",
        form="pairs",
        metavar="ROW=FILE",
        shown="those shipped for the row's model",
    )
    # What the rows of an ablation compare is not for an option to change.
    model: None = None
    metric: None = None
    variant: None = None
    modulation: None = None
    refine_min: None = None
    refine_max: None = None


OPTIONS: Mapping[str, type[ModelOptions]] = {
    "stream": StreamOptions,
    "evaluate": FewShotOptions,
    "active": ActiveOptions,
    "ablate": AblationOptions,
}
"""By verb."""
