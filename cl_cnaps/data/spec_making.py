"""Specifications for what is there: some classes of an official one, or classes split by fractions."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from cl_cnaps.data.layout import plain
from cl_cnaps.data.spec import SPLITS, DatasetSpec, Superclass
from cl_cnaps.data.wordnet import pruned
from cl_cnaps.errors import BadInputError

K = TypeVar("K", bound=Hashable)


def matched(labels: Sequence[str], names: Sequence[str]) -> dict[int, str]:
    """Class id of a specification -> the class of a source that it means, for those that have one.

    Names are compared without case and punctuation. Where the specification's names begin with a number
    ("014.Indigo bunting"), a source may call the class by its number alone.
    """
    by_name = _unique(((plain(name), name) for name in names), "folder")
    by_number = _unique(((int(name), name) for name in names if name.isdecimal()), "folder")
    found: dict[int, str] = {}
    for class_id, label in enumerate(labels):
        number = re.match(r"(\d+)\.", label)
        if plain(label) in by_name:
            found[class_id] = by_name[plain(label)]
        elif number is not None and int(number[1]) in by_number:
            found[class_id] = by_number[int(number[1])]
    _unique(((name, labels[class_id]) for class_id, name in found.items()), "class of the specification")
    return found


def subset(spec: DatasetSpec, counts: Mapping[int, int]) -> DatasetSpec:
    """The classes whose ids are in `counts`, with these image counts, numbered again, one file each."""
    chosen = sorted(counts)
    new_id = {old: new for new, old in enumerate(chosen)}
    names = tuple(spec.class_names[i] for i in chosen)
    classes: dict[str, range] = {}
    start = 0
    for split in SPLITS:
        kept = sum(i in new_id for i in spec.classes[split])
        classes[split] = range(start, start + kept)
        start += kept
    superclasses = None
    if spec.superclasses is not None:
        superclasses = {s: _regrouped(spec.superclasses[s], new_id) for s in SPLITS}
    graphs = None
    if spec.graphs is not None:
        graphs = {s: pruned(spec.graphs[s], {spec.class_names[i] for i in chosen}) for s in SPLITS}
    images = tuple(counts[i] for i in chosen)
    return DatasetSpec(spec.name, names, images, classes, superclasses=superclasses, graphs=graphs)


def by_fractions(
    name: str, counts: Mapping[str, int], fractions: tuple[float, float, float], seed: int
) -> DatasetSpec:
    """Plain classes dealt out at random to training, validation and test in these proportions."""
    if min(fractions) < 0 or not np.isclose(sum(fractions), 1):
        raise BadInputError(f"fractions of classes must be 0 or more and add up to 1; got {fractions}")
    names = list(counts)
    bounds = np.rint(np.cumsum(fractions) * len(names)).astype(int).tolist()
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    parts = [sorted(order[start:stop]) for start, stop in zip([0, *bounds], bounds, strict=False)]
    dealt = tuple(names[i] for part in parts for i in part)
    classes = {
        split: range(stop - len(part), stop) for split, part, stop in zip(SPLITS, parts, bounds, strict=True)
    }
    return DatasetSpec(name, dealt, tuple(counts[class_name] for class_name in dealt), classes)


def _regrouped(groups: Sequence[Superclass], new_id: Mapping[int, int]) -> tuple[Superclass, ...]:
    kept = [(group.name, [new_id[i] for i in group.classes if i in new_id]) for group in groups]
    return tuple(Superclass(name, range(ids[0], ids[-1] + 1)) for name, ids in kept if ids)


def _unique(pairs: Iterable[tuple[K, str]], what: str) -> dict[K, str]:
    """The pairs as a table; two values of one key are an error."""
    table: dict[K, str] = {}
    for key, value in pairs:
        if table.setdefault(key, value) != value:
            raise BadInputError(f"{table[key]!r} and {value!r} look like the same {what}; rename one")
    return table
