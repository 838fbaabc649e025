"""The classes of a stream: their order, the sizes of tasks, how many images each gets, and which come back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import numpy as np

from cl_cnaps.continual.plans import ImageView, PlannedClass, PlannedTask, Pool, StreamPlan
from cl_cnaps.errors import BadInputError
from cl_cnaps.paths import read_text, user_path

Shots = int | Literal["all"]
"""Labelled images a class: a number, or every image that is there."""


MOST_QUERIES = 100
"""Query images per class when no number is given: this many, or as many as every class has."""


@dataclass(frozen=True)
class StreamConfig:
    """Which images of a source make the stream, run by run."""

    benchmark: str
    shots: Shots | None = None
    queries: int | None = None
    classes_per_task: int | tuple[int, ...] | None = None
    """Of every task, the last of which may be smaller; or the sizes of all tasks."""
    class_order: tuple[str, ...] | int | None = None
    """Names, or the seed of numpy's legacy permutation."""
    shuffle_classes: int | None = None
    """Seed of a random class order, apart from the seed of the images."""
    seed: int = 0
    base_classes: int = 0
    """Classes of the first task; 0: as many as the others."""
    base_shots: Shots | None = None
    """Labelled images a class of the first task, where they differ from the others."""
    lists: Path | None = None
    """Folder of the published image lists of a few-shot class-incremental benchmark."""
    repeat: int = 0
    """Classes of earlier tasks that come back in every later task, with new images."""


def plan_tasks(
    config: StreamConfig,
    tasks: Sequence[tuple[str, Sequence[Pool], ImageView]],
    usual_shots: int,
    notes: tuple[str, ...] = (),
) -> StreamPlan:
    """Return the plan: numbers of images for every class, and classes that come back; too few images are refused."""
    later: Shots = usual_shots if config.shots is None else config.shots
    shots = [
        config.base_shots if number == 0 and config.base_shots is not None else later
        for number in range(len(tasks))
    ]
    for given in shots:
        if given != "all" and given < 1:
            raise BadInputError(f"shots must be at least 1, got {given}")
    if config.queries is not None and config.queries < 1:
        raise BadInputError(f"queries must be at least 1, got {config.queries}")
    back = _coming_back(config, tasks)
    queries = config.queries
    if queries is None:
        fewest = min(
            _free(pool, given) for (_, pools, _), given in zip(tasks, shots, strict=True) for pool in pools
        )
        queries = min(MOST_QUERIES, max(fewest, 1))
    planned = []
    for number, (title, pools, view) in enumerate(tasks):
        classes = [
            _planned(config.benchmark, pool, shots[number], queries, drawn_at=number, turn=0)
            for pool in pools
        ]
        for pool, first, turn in back[number]:
            if "all" in (shots[first], shots[number]) or shots[first] != shots[number]:
                raise BadInputError("--repeat needs the same number of shots in every task")
            classes.append(
                _planned(config.benchmark, pool, shots[number], queries, drawn_at=first, turn=turn)
            )
        planned.append(PlannedTask(title, tuple(classes), view))
    return StreamPlan(config.benchmark, tuple(planned), config.seed, notes)


def _coming_back(
    config: StreamConfig, tasks: Sequence[tuple[str, Sequence[Pool], ImageView]]
) -> list[list[tuple[Pool, int, int]]]:
    """Return for every task the earlier classes that come back in it, with their first task and their turn."""
    if config.repeat < 0:
        raise BadInputError(f"--repeat is 0 or more classes a task, not {config.repeat}")
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([config.seed, 0xBAC])))
    turns: dict[str, int] = {}
    seen: list[tuple[Pool, int]] = []
    found = []
    for number, (_, pools, _) in enumerate(tasks):
        here = []
        if config.repeat and number:
            if len(seen) < config.repeat:
                raise BadInputError(
                    f"--repeat {config.repeat} needs as many classes before the second task; there are {len(seen)}"
                )
            for index in sorted(rng.permutation(len(seen))[: config.repeat]):
                pool, first = seen[index]
                turns[pool.name] = turns.get(pool.name, 0) + 1
                here.append((pool, first, turns[pool.name]))
        seen += [(pool, number) for pool in pools]
        found.append(here)
    return found


def _free(pool: Pool, shots: Shots) -> int:
    """Return how many query images a class has beside its support images; of one pool and all shots, half."""
    if not pool.one:
        return pool.query
    return pool.query // 2 if shots == "all" else pool.query - shots


def _planned(
    benchmark: str, pool: Pool, shots: Shots, queries: int, *, drawn_at: int, turn: int
) -> PlannedClass:
    number = shots
    if number == "all":
        number = pool.support - queries if pool.one else pool.support
    needed = number * (1 + turn) + (queries if pool.one else 0)
    of = f"class {pool.class_name!r} of {pool.source.name} has {pool.support} images"
    if pool.one and (number < 1 or pool.support < needed):
        raise BadInputError(
            f"{of}; {'all but' if shots == 'all' else f'{needed - queries} shots and'} {queries} queries need "
            f"{max(needed, queries + 1)}. Choose fewer with --shots and --queries"
        )
    if pool.support < needed or number < 1:
        raise BadInputError(
            f"{of} in split {pool.support_split!r}, {needed} shots are needed ({benchmark}). Choose fewer with --shots"
        )
    if pool.query < queries:
        raise BadInputError(
            f"class {pool.class_name!r} of {pool.source.name} has {pool.query} images in split "
            f"{pool.query_split!r}, {queries} queries are needed ({benchmark}). Choose fewer with --queries"
        )
    return PlannedClass(
        **{one.name: getattr(pool, one.name) for one in fields(pool)},
        shots=number,
        queries=queries,
        turn=turn,
        drawn_at=drawn_at,
    )


def default_shots(most: int, pools: Iterable[Pool]) -> int:
    """Return the shots of images without a named benchmark: half of the smallest class, at most `most`."""
    found = [pool.support // 2 if pool.one else pool.support for pool in pools]
    return max(1, min(most, *found))


def legacy_order(classes: Sequence[str], seed: int) -> list[str]:
    """Shuffle as published class-incremental tables do: numpy's legacy generator; their seed is 1993."""
    return [classes[i] for i in np.random.RandomState(seed).permutation(len(classes))]


def read_class_order(text: str) -> tuple[str, ...] | int:
    """Read `seed:1993`, a file with one class a line, or names with commas; a number is the seed of `legacy_order`."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "seed":
        if not rest.isdecimal() or len(rest) > 10 or int(rest) >= 2**32:
            raise BadInputError(f"the class order {text!r} needs a seed in 0..{2**32 - 1}, as in seed:1993")
        return int(rest)
    path = user_path(text)
    if "," not in text and path.is_file():
        names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
        if not names:
            raise BadInputError(f"the class order in {path} is empty; write one class a line")
        return names
    return tuple(part.strip() for part in text.split(","))


def _is_below(text: str, limit: int) -> bool:
    return text.isdecimal() and len(text) < 10 and int(text) < limit  # of thousands of digits `int` raises


def ordered(
    available: Sequence[str], order: tuple[str, ...] | int | None, shuffle: int | None, source: str
) -> list[str]:
    """Return the classes to learn, in order; classes that a list of names leaves out are left out.

    Args:
        available: in the order of the source.
        order: names, or label numbers if they are all numbers that are no names; or the seed of `legacy_order`.
        shuffle: seed of a random order of what `order` gives.
        source: its name, for messages.
    """
    classes = list(available)
    if isinstance(order, int):
        classes = legacy_order(classes, order)
    elif order is not None:
        known = set(available)
        if not known & set(order) and all(_is_below(name, len(classes)) for name in order):
            order = tuple(classes[int(name)] for name in order)
        unknown = [name for name in order if name not in known]
        if unknown:
            raise BadInputError(
                f"{source} has no class {unknown[0]!r}; its {len(available)} classes begin with "
                f"{', '.join(available[:5])}"
            )
        if len(set(order)) != len(order):
            twice = next(name for i, name in enumerate(order) if name in order[:i])
            raise BadInputError(f"the class order is no permutation: it names the class {twice!r} twice")
        classes = list(order)
    if shuffle is not None:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([shuffle, 0x5C])))
        classes = [classes[i] for i in rng.permutation(len(classes))]
    if not classes:
        raise BadInputError(f"{source} has no classes")
    return classes


def task_sizes(classes: int, base: int, per_task: int | tuple[int, ...]) -> list[int]:
    """Return how many classes each task has.

    Args:
        classes: in all.
        base: of the first task; 0 for one like the others.
        per_task: of the others, the last of which has what is left; or the sizes of all tasks.
    """
    if isinstance(per_task, tuple):
        if base:
            raise BadInputError("a list of task sizes names the first task too: leave --base-classes out")
        if min(per_task, default=0) < 1 or sum(per_task) > classes:
            raise BadInputError(
                f"tasks of {', '.join(map(str, per_task))} classes need sizes of at least 1 and {sum(per_task)} "
                f"classes in all; there are {classes}"
            )
        return list(per_task)
    if per_task < 1 or base < 0:
        raise BadInputError(f"a task needs at least 1 class, not {min(per_task, base)}")
    if base > classes:
        raise BadInputError(f"a base task of {base} classes needs as many; there are {classes}")
    left = classes - base
    sizes = [base] * bool(base) + [per_task] * (left // per_task)
    return sizes + [left % per_task] * bool(left % per_task)
