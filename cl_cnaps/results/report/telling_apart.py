"""Names for records side by side: short, and longer only by what differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cl_cnaps.results.wording import ABSENT

_LONGEST = 14
"""Of a value in a name; digests are cut to it."""


@dataclass(frozen=True)
class Named:
    """A record with the short name that it would have alone."""

    name: str
    place: str
    """Where it stands: names need to differ only among records of one place, such as a benchmark."""
    config: Mapping[str, Any]
    id: str


def told_apart(records: Sequence[Named], ignore: Collection[str]) -> list[str]:
    """A name for each record: its own, with the settings in which records of one name and place differ.

    A setting that differs anywhere is named for all records of that name, so that rows of several places still meet.
    `ignore` are settings that the place decides. Records that differ in nothing else are told apart by their ids.
    """
    flat = [
        {key: value for key, value in flattened(one.config).items() if key.split(".")[0] not in ignore}
        for one in records
    ]
    members: defaultdict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(records):
        members[one.name].append(index)
    names = [one.name for one in records]
    for indices in members.values():
        keys = _differing([(records[i].place, flat[i]) for i in indices])
        for i in indices:
            settings = [f"{key.split('.')[-1].replace('_', ' ')} {_short(flat[i].get(key))}" for key in keys]
            names[i] = ", ".join([names[i], *settings])
    twice = Counter((name, one.place) for name, one in zip(names, records, strict=True))
    return [
        f"{name}, {one.id}" if twice[name, one.place] > 1 else name
        for name, one in zip(names, records, strict=True)
    ]


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level, with dots in the keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _differing(settings: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Keys whose values differ between settings of one place."""
    by_place: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for place, setting in settings:
        by_place[place].append(setting)
    keys = dict.fromkeys(key for _, setting in settings for key in setting)
    return [
        key
        for key in keys
        if any(len({repr(one.get(key)) for one in some}) > 1 for some in by_place.values())
    ]


def _short(value: Any) -> str:
    return ABSENT if value is None else str(value)[:_LONGEST]
