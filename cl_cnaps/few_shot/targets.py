"""From a target's name to the data sets and shapes of tasks that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cl_cnaps.data import open_source
from cl_cnaps.data.catalog import known_set
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.few_shot.meta_dataset import COLUMNS, Column, Domain, column
from cl_cnaps.few_shot.tasks import TaskShape
from cl_cnaps.paths import data_root

META_DATASET = "meta-dataset"
MINI_TIERED = ("mini-imagenet", "tiered-imagenet")
QUERIES = 10
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
    """The shapes of tasks that are asked for; what is left out is the target's own.

    Meta-Dataset's are variable. Those of mini- and tiered-ImageNet are 5 and 10 ways with 1 and 5 shots; of other
    sources 5 ways with 5 shots. `vary_queries` asks for every shape with each of these numbers of queries.
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
    is not there is fetched; with `features`, it may be a source of features.
    """
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
            f"--specs says which classes are for testing, but {target} has a test split of its own, which its tasks "
            "are drawn from: leave --specs out"
        )
    source = open_source(target, download=download, features=features)
    tasks_of = evaluation_set(source, specs=specs)
    known, place = known_set(source.name), column(source.name)
    title = place.title if place else known.title if known else source.name
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
