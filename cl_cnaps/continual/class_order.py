"""In which order the classes of a stream come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cl_cnaps.errors import BadInputError


def legacy_order(classes: Sequence[str], seed: int) -> list[str]:
    """Shuffle as published class-incremental tables do: numpy's legacy generator; their seed is 1993."""
    return [classes[i] for i in np.random.RandomState(seed).permutation(len(classes))]


def read_class_order(text: str) -> tuple[str, ...] | int:
    """Read `seed:1993`, a file with one class a line, or names with commas; a number is the seed of `legacy_order`."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "seed":
        if not rest.isdecimal() or int(rest) >= 2**32:
            raise BadInputError(f"the class order {text!r} needs a seed in 0..{2**32 - 1}, as in seed:1993")
        return int(rest)
    path = Path(text).expanduser()
    if "," not in text and path.is_file():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"the class order in {path} cannot be read: {error}") from error
        names = tuple(line.strip() for line in lines if line.strip())
        if not names:
            raise BadInputError(f"the class order in {path} is empty; write one class a line")
        return names
    return tuple(part.strip() for part in text.split(","))


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
        if not known & set(order) and all(name.isdecimal() and int(name) < len(classes) for name in order):
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
