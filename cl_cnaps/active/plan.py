"""How much is labelled, when and how often; which classes make a task, and which images are for what in each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cl_cnaps.data.catalog import known_set
from cl_cnaps.data.folders import plain
from cl_cnaps.data.source import CountedSource
from cl_cnaps.episodes import ClassTable, Episode, SplitSpec
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.episode_images import SPLIT, EpisodeImages, Piece
from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set


@dataclass(frozen=True)
class Protocol:
    """Labels to start with, labels a round, rounds and runs; images of each class.

    A curve has `rounds` + 1 points: the first is measured before any label is requested.
    """

    initial: int = 5
    """Labelled images of each class at the start."""
    per_round: int = 25
    """Labels requested at a time."""
    rounds: int = 5
    runs: int = 4
    """Each with new initial labels, pool and test set."""
    pool: int | None = None
    """Unlabelled images of each class; None for all that are left."""
    test: int | None = None
    """Test images of each class; None for all."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise BadInputError(f"{name} is {value}; 1 is the least")

    def changed(self, given: Mapping[str, Any]) -> Protocol:
        """Return a copy with the numbers that are given; None stands for not given."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def fitting(self, classes: int) -> Protocol:
        """Return a copy with no more rounds than a pool of so many classes has labels for."""
        if self.pool is None:
            return self
        return replace(self, rounds=max(1, min(self.rounds, classes * self.pool // self.per_round)))


PAPER: Mapping[str, Protocol] = {
    "cifar10": Protocol(initial=5, per_round=25, rounds=29, runs=10, pool=None, test=None),
    "omniglot": Protocol(initial=5, per_round=1, rounds=29, runs=30, pool=10, test=5),
}
"""The paper's (fig:active-learning-figure): curves of 30 points."""

SHORT: Mapping[str, Protocol] = {
    "cifar10": Protocol(initial=5, per_round=25, rounds=5, runs=4, pool=50, test=50),
    "omniglot": Protocol(initial=5, per_round=1, rounds=9, runs=4, pool=10, test=5),
}
"""The paper's, cut down to what two CPU cores do in a few minutes with adapted features."""

FIGURE_ALPHABETS = ("Angelic", "Atemayar_Qelisayer")
"""Those of Omniglot's evaluation set that the paper shows in the figure and not in the appendix; the short default."""

MOST_IMAGES = 50
"""Of each class in the pool, and in the test set, where neither a protocol nor a person gives a number."""


def protocol_for_any(
    classes: int, fewest: int, fewest_test: int | None, given: Mapping[str, Any] | None = None
) -> Protocol:
    """A short protocol for a source that the paper does not have, whose smallest class has `fewest` images.

    `fewest_test` is the same of a test split; without one the test images are taken from the same images. Numbers that
    are `given` stay, and the others leave room for them.
    """
    given = {name: value for name, value in (given or {}).items() if value is not None}
    shared_test = given.get("test", 1) if fewest_test is None else 0
    spare = fewest - shared_test - given.get("pool", 1)
    initial = given.get("initial", max(1, min(5, fewest // 4, spare)))
    rest = fewest - initial
    if fewest_test is None:
        test = given.get("test", max(1, min(MOST_IMAGES, rest // 3, rest - given.get("pool", 1))))
        rest -= test
    else:
        test = min(MOST_IMAGES, fewest_test)
    usual = Protocol(initial, max(1, classes // 2), 9, 4, max(1, min(MOST_IMAGES, rest)), test)
    return usual.changed(given)


_DRAW, _SHUFFLE = 1, 2
"""What a generator is for, so that two uses never share numbers."""


@dataclass(frozen=True)
class Task:
    """Classes that are learned together."""

    name: str | None
    """Of Omniglot the alphabet; None where all classes of a source are one task."""
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Draw:
    """The images of one run of one task, as an episode.

    Its support set is what may be labelled: first the images that are from the start, then the pool, shuffled. Its
    query set is the test set, shuffled. So no position gives a class away, but for those known from the start.
    """

    episode: Episode
    initial: int
    """How many images are labelled from the start."""


@dataclass(frozen=True)
class ActivePlan:
    """Everything about an experiment's images but their draw, which each run makes anew."""

    source: str
    tasks_of: EvaluationSet
    learn_from: Mapping[str, int] | None
    """How many of a class's images, counted from the first, may be labelled; the others are for testing.

    None where a class has one pool of images, from which both are drawn."""
    tasks: tuple[Task, ...]
    protocol: Protocol
    seed: int

    def draw(self, task: Task, run: int) -> Draw:
        """The images of a run: a function of seed, run, class and protocol, and of nothing else.

        A larger pool has the images of a smaller one, and the same initial and test images.
        """
        parts: tuple[list[IntArray], ...] = ([], [], [])
        for position, name in enumerate(task.classes):
            for rows, chosen in zip(parts, self._of_class(name, run), strict=True):
                rows.append(np.stack([np.full_like(chosen, position), chosen], axis=1))
        initial, pool, test = (np.concatenate(rows) for rows in parts)
        rng = _generator(self.seed, run, _SHUFFLE, task.name or "")
        query = rng.permutation(test)
        support = np.concatenate([initial, rng.permutation(pool)])
        return Draw(Episode(self.source, task.classes, support, query, self.seed, run), len(initial))

    def _of_class(self, name: str, run: int) -> tuple[IntArray, IntArray, IntArray]:
        """Image numbers of a class: initial, pool and test."""
        rng, protocol = _generator(self.seed, run, _DRAW, name), self.protocol
        count = self.tasks_of.images.count(SPLIT, name)
        if self.learn_from is None:
            assert protocol.test is not None
            order = rng.permutation(count)
            initial, test, rest = np.split(order, [protocol.initial, protocol.initial + protocol.test])
        else:
            learn_from = self.learn_from[name]
            initial, rest = np.split(rng.permutation(learn_from), [protocol.initial])
            test = (learn_from + rng.permutation(count - learn_from))[: protocol.test]
        return initial, rest[: protocol.pool], test


@dataclass(frozen=True)
class DrawSampler:
    """The runs of a task as a sampler of episodes."""

    plan: ActivePlan
    task: Task

    def episode(self, index: int) -> Episode:
        """Run number `index`, from 0."""
        return self.plan.draw(self.task, index).episode


def make_plan(
    source: CountedSource,
    *,
    given: Mapping[str, Any] | None = None,
    paper: bool = False,
    alphabets: Sequence[str] | None = None,
    seed: int = 0,
) -> ActivePlan:
    """Resolve the options against a source, refusing what it cannot give.

    Args:
        source: where the images come from.
        given: numbers of `Protocol` that are not to be the default's.
        paper: the paper's protocol in full, and all alphabets, in place of the short default.
        alphabets: names of Omniglot's alphabets, or `all`; None for the default's.
        seed: decides every draw.
    """
    if not 0 <= seed < 2**32:  # a longer one would be cut into words that could be another draw's
        raise BadInputError(f"the seed is {seed}; it must be in 0..{2**32 - 1}")
    known = known_set(source.name)
    name = known.name if known else source.name
    tasks_of, learn_from = _images(source)
    tasks = _tasks(tasks_of, alphabets, everything=paper)
    fewest = min((len(task.classes) for task in tasks), default=0)
    if fewest < 2:
        raise BadInputError(
            f"{source.name} has a task of {fewest} classes with enough images; a classifier needs two"
        )
    if paper and name not in PAPER:
        raise BadInputError(f"the paper has protocols for {' and '.join(PAPER)}, not for {name}")
    given = given or {}
    usual = (PAPER if paper else SHORT).get(name) or _default(tasks_of, learn_from, tasks, given)
    protocol = usual.changed(given)
    if given.get("rounds") is None and not paper:
        protocol = protocol.fitting(fewest)
    plan = ActivePlan(source.name, tasks_of, learn_from, tasks, protocol, seed)
    _check_enough(plan)
    return plan


def _images(source: CountedSource) -> tuple[EvaluationSet, Mapping[str, int] | None]:
    """Training and test images of the same classes if there are both; else the classes that are for testing."""
    splits = {split: source.classes(split) for split in ("train", "test") if split in source.splits}
    if len(splits) < 2 or set(splits["train"]).isdisjoint(splits["test"]):
        return evaluation_set(source), None
    if alone := sorted(set(splits["train"]) ^ set(splits["test"])):
        named = ", ".join(map(repr, alone[:5])) + (", ..." if len(alone) > 5 else "")
        raise BadInputError(
            f"{source.name} has {named} in only one of its splits train and test: give every class both, or none"
        )
    counts = {name: [source.count(split, name) for split in splits] for name in splits["train"]}
    pieces = {name: [Piece("train", name, a), Piece("test", name, b)] for name, (a, b) in counts.items()}
    table = ClassTable.of({name: sum(both) for name, both in counts.items()})
    chosen = f"all {len(table)} classes; labels from the split train, test images from the split test"
    images = EpisodeImages(source, pieces)
    tasks_of = EvaluationSet(images, SplitSpec(table), chosen, held_out=False)
    return tasks_of, {name: a for name, (a, _) in counts.items()}


def _tasks(tasks_of: EvaluationSet, alphabets: Sequence[str] | None, *, everything: bool) -> tuple[Task, ...]:
    groups = tasks_of.classes.groups
    if groups is None:
        if alphabets is not None:
            raise BadInputError(f"{tasks_of.name} has no alphabets: leave --alphabet out")
        return (Task(None, tasks_of.classes.classes.names),)
    by_plain_name = {plain(group): group for group in groups}
    if (
        alphabets is None
        and not everything
        and all(plain(name) in by_plain_name for name in FIGURE_ALPHABETS)
    ):
        alphabets = FIGURE_ALPHABETS
    if alphabets is not None and "all" in alphabets and set(alphabets) != {"all"}:
        others = ", ".join(name for name in alphabets if name != "all")
        raise BadInputError(f"--alphabet is all or some names, not all and {others}")
    if alphabets is None or "all" in alphabets:
        return tuple(Task(group, names) for group, names in groups.items())
    chosen: dict[str, Task] = {}
    for name in alphabets:
        group = by_plain_name.get(plain(name))
        if group is None:
            raise BadInputError(f"{tasks_of.name} has no alphabet {name!r}; it has {', '.join(groups)}")
        chosen[group] = Task(group, groups[group])
    return tuple(chosen.values())


def _default(
    tasks_of: EvaluationSet,
    learn_from: Mapping[str, int] | None,
    tasks: Sequence[Task],
    given: Mapping[str, Any],
) -> Protocol:
    names = [name for task in tasks for name in task.classes]
    counts = {name: tasks_of.images.count(SPLIT, name) for name in names}
    classes = min(len(task.classes) for task in tasks)
    if learn_from is None:
        return protocol_for_any(classes, min(counts.values()), None, given)
    fewest_test = min(counts[name] - learn_from[name] for name in names)
    return protocol_for_any(classes, min(learn_from[name] for name in names), fewest_test, given)


def _check_enough(plan: ActivePlan) -> None:
    """Refuse to do less than the protocol."""
    protocol = plan.protocol
    if plan.learn_from is None and protocol.test is None:
        raise BadInputError(
            f"{plan.source} has no test split: give with --test how many images are for testing"
        )
    for name in dict.fromkeys(name for task in plan.tasks for name in task.classes):
        count = plan.tasks_of.images.count(SPLIT, name)
        learn_from = count if plan.learn_from is None else plan.learn_from[name]
        shared_test = protocol.test or 0 if plan.learn_from is None else 0
        needed = protocol.initial + (protocol.pool or 1) + shared_test
        if learn_from < needed:
            also = f", {shared_test} test images" if shared_test else ""
            raise BadInputError(
                f"class {name!r} of {plan.source} has {learn_from} images; {protocol.initial} initial labels, "
                f"a pool of {protocol.pool or 1}{also} need {needed}. Ask for fewer with --initial, --pool, --test"
            )
        if plan.learn_from is not None and count - learn_from < (protocol.test or 1):
            raise BadInputError(
                f"class {name!r} of {plan.source} has {count - learn_from} test images, {protocol.test or 1} are "
                "needed. Give a smaller --test"
            )
    for task in plan.tasks:
        draw = plan.draw(task, 0)
        pool, wanted = len(draw.episode.support) - draw.initial, protocol.rounds * protocol.per_round
        if wanted > pool:
            raise BadInputError(
                f"{protocol.rounds} rounds of {protocol.per_round} labels need a pool of {wanted} images; that of "
                f"{task.name or plan.source} has {pool}. Ask for fewer with --rounds or --per-round, or for more with "
                "--pool"
            )


def _generator(seed: int, run: int, purpose: int, name: str) -> np.random.Generator:
    entropy = [seed, run, purpose, *name.encode()]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
