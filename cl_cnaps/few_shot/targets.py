"""From a target's name to the data sets and shapes of tasks that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from cl_cnaps.data import open_source
from cl_cnaps.data.catalog import known_set
from cl_cnaps.episodes import (
    Episode,
    EpisodeSampler,
    FixedConfig,
    FixedSampler,
    MetaDatasetConfig,
    MetaDatasetSampler,
)
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.paths import data_root, specs_root

Domain = Literal["in", "out"]


@dataclass(frozen=True)
class Column:
    """A column of `tab:results:meta-dataset-1` and `-2`."""

    name: str
    title: str
    domain: Domain
    """`in`: the paper's models were meta-trained on other classes of this data set."""
    sources: tuple[str, ...]
    """Sources that serve, best first; any but the first is a stand-in."""


COLUMNS = (
    Column("ilsvrc_2012", "ImageNet", "in", ("ilsvrc_2012", "mini-imagenet")),
    Column("omniglot", "Omniglot", "in", ("omniglot",)),
    Column("aircraft", "Aircraft", "in", ("aircraft",)),
    Column("cu_birds", "Birds", "in", ("cu_birds",)),
    Column("dtd", "DTD", "in", ("dtd",)),
    Column("quickdraw", "QuickDraw", "in", ("quickdraw",)),
    Column("fungi", "Fungi", "in", ("fungi",)),
    Column("vgg_flower", "Flower", "in", ("vgg_flower",)),
    Column("traffic_sign", "Signs", "out", ("traffic_sign",)),
    Column("mscoco", "MSCOCO", "out", ("mscoco",)),
    Column("mnist", "MNIST", "out", ("mnist",)),
    Column("cifar10", "CIFAR10", "out", ("cifar10",)),
    Column("cifar100", "CIFAR100", "out", ("cifar100",)),
)
"""In the paper's order."""


def column(name: str) -> Column | None:
    """The column of a data set, if it has one."""
    return next((known for known in COLUMNS if known.name == name), None)


GROUPS: Mapping[str, tuple[Domain, ...]] = {"in": ("in",), "out": ("out",), "all": ("in", "out")}
"""Average -> the domains of the data sets that it is over."""


QUERIES = 10
"""Of each class, unless given, and wherever the paper prints a number."""


@dataclass(frozen=True)
class TaskShape:
    """Fixed ways and shots, or both None for Meta-Dataset's variable ones."""

    ways: int | None
    shots: int | None
    queries: int = QUERIES
    """Query images of each class; of variable tasks at most."""
    drawn_queries: int | None = None
    """If tasks are drawn with more queries, of which the first `queries` are used: tasks that differ in this
    number alone then share classes, support and the queries they have in common."""

    def __post_init__(self) -> None:
        if (self.ways is None) != (self.shots is None):
            raise BadInputError("ways and shots are both fixed, or both variable")
        if self.drawn_queries is not None and self.drawn_queries < self.queries:
            raise BadInputError(f"{self.queries} queries cannot be used of {self.drawn_queries} drawn")

    @property
    def variable(self) -> bool:
        """Whether ways and shots differ from task to task."""
        return self.ways is None

    @property
    def words(self) -> str:
        """`5-way 1-shot`, or `variable`."""
        return "variable" if self.variable else f"{self.ways}-way {self.shots}-shot"


class FirstQueries:
    """Another sampler's tasks with the first so many query images of each class."""

    def __init__(self, sampler: EpisodeSampler, queries: int) -> None:
        self.sampler = sampler
        self.queries = queries

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""
        episode = self.sampler.episode(index)
        # Rows are grouped by class, so a row's number in its class is its distance from the class's first.
        starts = np.concatenate([[0], np.cumsum(episode.queries)[:-1]])
        number = np.arange(len(episode.query)) - starts[episode.query[:, 0]]
        return replace(episode, query=episode.query[number < self.queries])


def make_sampler(tasks_of: EvaluationSet, shape: TaskShape, seed: int) -> EpisodeSampler:
    """Tasks of this shape: episode i is a function of the classes, the seed and i."""
    drawn = shape.drawn_queries or shape.queries
    sampler: EpisodeSampler
    if shape.ways is None or shape.shots is None:
        variable = MetaDatasetConfig(max_queries=drawn)
        sampler = MetaDatasetSampler(tasks_of.name, tasks_of.classes, seed=seed, config=variable)
    else:
        config = FixedConfig(shape.ways, shape.shots, drawn)
        sampler = FixedSampler(tasks_of.name, tasks_of.classes.classes, seed=seed, config=config)
    return sampler if drawn == shape.queries else FirstQueries(sampler, shape.queries)


META_DATASET = "meta-dataset"
MINI_TIERED = ("mini-imagenet", "tiered-imagenet")
OFFLINE = ("glyphs", "mnist")
"""What every installation has: characters that it draws, and digits that come with a package."""


@dataclass(frozen=True)
class TargetSet:
    """One data set of a target."""

    name: str
    """The data set that is meant; the source may be a stand-in for it."""
    title: str
    domain: Domain | None
    tasks_of: EvaluationSet

    @property
    def stand_in(self) -> str | None:
        """The source that stands in for the data set, if one does."""
        return self.tasks_of.name if column(self.name) and self.tasks_of.name != self.name else None


@dataclass(frozen=True)
class Missing:
    """A data set of a target that is not there."""

    name: str
    title: str
    domain: Domain
    reason: str


@dataclass(frozen=True)
class Target:
    """What an evaluation is of."""

    name: str
    sets: tuple[TargetSet, ...]
    shapes: tuple[TaskShape, ...]
    missing: tuple[Missing, ...] = field(default=())

    @property
    def nothing_but_digits(self) -> bool:
        """Whether MNIST, which every installation has, is all that is there."""
        return [one.name for one in self.sets] == ["mnist"]

    @property
    def preface(self) -> str:
        """What is there and what is missing, in a sentence; empty where nothing is."""
        if not self.missing:
            return ""
        there = ", ".join(one.title + (f" ({one.stand_in})" if one.stand_in else "") for one in self.sets)
        return (
            f"{len(self.sets)} of {len(self.sets) + len(self.missing)} data sets of Meta-Dataset: {there}. Missing: "
            f"{', '.join(one.title for one in self.missing)}; `cl-cnaps data list` names what to put where."
        )


def offline_words(what: str, sources: Sequence[str]) -> str:
    """Return what is used where `what` is not there, in a sentence."""
    used = {
        "glyphs": "characters that are drawn here (glyphs)",
        "mnist": "the digits of the installation (mnist)",
    }
    return f"No {what} under CL_CNAPS_DATA: on {' and '.join(used[name] for name in sources)} instead."


def default_targets() -> tuple[str, ...]:
    """Return what is evaluated where no target is named: Meta-Dataset, or what every installation has."""
    others = [name for known in COLUMNS for name in known.sources if name != "mnist"]
    return (META_DATASET,) if any(map(is_there, others)) else OFFLINE


def is_there(source: str) -> bool:
    """Whether a source can be opened without fetching it."""
    try:
        open_source(source)
    except MissingDataError:
        return False
    return True


def refinement_steps(target: str) -> tuple[int, int]:
    """The paper's least and most steps of refinement: 2 to 10 on mini- and tiered-ImageNet, else 2 to 4."""
    return (2, 10) if _plain(target) in MINI_TIERED else (2, 4)


def task_shapes(
    target: str,
    *,
    ways: Sequence[int] = (),
    shots: Sequence[int] = (),
    queries: int | None = None,
    variable: bool = False,
    vary_queries: Sequence[int] = (),
) -> tuple[TaskShape, ...]:
    """The shapes of tasks that the options name; what is not given is the target's own.

    Meta-Dataset's are variable. Those of mini- and tiered-ImageNet are 5 and 10 ways with 1 and 5 shots; of other
    sources 5 ways with 5 shots. `vary_queries` makes every shape with each of these numbers of queries.
    """
    fixed = bool(ways or shots)
    if fixed and (variable or target == META_DATASET):
        what = "tasks of variable shape" if variable else META_DATASET
        raise BadInputError(f"{what} have no fixed ways and shots: leave --ways and --shots out")
    if vary_queries and queries is not None:
        raise BadInputError("give either one number of queries or several to vary, not both")
    if len(set(vary_queries)) != len(vary_queries):
        raise BadInputError(f"a number of queries is given twice: {', '.join(map(str, vary_queries))}")
    per_class = sorted(vary_queries) or [QUERIES if queries is None else queries]
    drawn = per_class[-1] if vary_queries else None
    sizes: list[tuple[int | None, int | None]]
    if variable or target == META_DATASET:
        sizes = [(None, None)]
    elif _plain(target) in MINI_TIERED:
        sizes = [(way, shot) for way in ways or (5, 10) for shot in shots or (1, 5)]
    else:
        sizes = [(way, shot) for way in ways or (5,) for shot in shots or (5,)]
    return tuple(TaskShape(way, shot, count, drawn) for way, shot in sizes for count in per_class)


def plan(
    target: str,
    shapes: Sequence[TaskShape],
    *,
    specs: Path | None = None,
    only: Sequence[str] = (),
    download: bool = False,
    features: bool = False,
) -> Target:
    """Open the data sets of a target: `meta-dataset`, or any name that `open_source` knows.

    `only` names some of the data sets of Meta-Dataset, to leave out the others. With `download`, a single source that
    is not there is fetched; with `features`, it may be a source of features. Without `specs`, those of `specs_root`.
    """
    if specs is None and takes_specs(target):
        specs = specs_root()
    if target == META_DATASET:
        if unknown := [name for name in only if column(name) is None]:
            raise BadInputError(
                f"{unknown[0]!r} is no data set of Meta-Dataset: {', '.join(one.name for one in COLUMNS)}"
            )
        found = [_find(known, specs) for known in COLUMNS if not only or known.name in only]
        sets = tuple(one for one in found if isinstance(one, TargetSet))
        missing = tuple(one for one in found if isinstance(one, Missing))
        if not sets:
            raise MissingDataError(
                f"none of the {len(found)} data sets of Meta-Dataset is there; the first: {missing[0].reason}"
            )
        return Target(target, sets, tuple(shapes), missing)
    if specs is not None and not takes_specs(target):
        raise BadInputError(
            f"--specs decides which classes are for testing, but {target} has a test split of its own, which its tasks "
            "are drawn from: leave --specs out"
        )
    source = open_source(target, download=download, features=features)
    tasks_of = evaluation_set(source, specs=specs)
    title = named.title if (named := column(source.name) or known_set(source.name)) else source.name
    return Target(target, (TargetSet(source.name, title, None, tasks_of),), tuple(shapes))


def takes_specs(target: str) -> bool:
    """Whether official specifications decide the test classes of a target; not those of mini- and tiered-ImageNet."""
    return _plain(target) not in MINI_TIERED


def _find(known: Column, specs: Path | None) -> TargetSet | Missing:
    """A column's data set from the best source that is there."""
    reason = ""
    for name in known.sources:
        try:
            source = open_source(name)
        except MissingDataError as error:
            reason = reason or str(error)
            continue
        tasks_of = evaluation_set(source, specs=specs, spec_name=known.name)
        return TargetSet(known.name, known.title, known.domain, tasks_of)
    # Records are passed on: they name what is missing, not the folders of the machine where it was looked for.
    reason = reason.replace(str(data_root()), "the data root")
    return Missing(known.name, known.title, known.domain, reason)


def _plain(target: str) -> str:
    known = known_set(target)
    return known.name if known else target
