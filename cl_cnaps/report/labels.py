"""How models, settings and numbers are written in tables, titles and legends, and what distinguishes rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cl_cnaps.experiments.options import SETTINGS, ModelOptions, options_of
from cl_cnaps.names import BASELINES, CNAPS_MODELS, ENCODINGS, FEATURES

_OPTIONS = options_of(ModelOptions)

ABSENT = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"


def model_name(model: str) -> str:
    """The model as a paper would write it; names not known here stay as they are."""
    return CNAPS_MODELS.get(model) or BASELINES.get(model, model)


def method_name(of: Mapping[str, Any]) -> str:
    """Return the model of a row with each setting that is not its own: `Simple CNAPS, cosine`."""
    return ", ".join([model_name(of["model"]), *unusual_settings(of)])


def unusual_settings(of: Mapping[str, Any]) -> list[str]:
    """Return the settings of a row's model that are not the usual ones, in words; a row may lack some."""
    found = []
    for name in ("variant", *(name for name in SETTINGS if name != "variant")):
        declared = _OPTIONS[name][1]
        usual = ("euclidean",) if (name, of["model"]) == ("metric", "protonet") else declared.usual
        value = of.get(name)
        if value is not None and value not in usual:
            found.append(declared.label(value) if declared.label else f"{name.replace('_', ' ')} {value}")
    return found


def is_plain(of: Mapping[str, Any]) -> bool:
    """Whether a row is of a model itself, with none of its settings changed."""
    return not unusual_settings(of)


def adaptation_words(adaptation: str | None) -> str:
    """`frozen features` for none, `adapted features` for FiLM's; nothing for a model without that choice."""
    return "" if adaptation is None else FEATURES.get(adaptation, f"adaptation {adaptation}")


def in_order(values: Iterable[str | None], order: Sequence[str]) -> list[str | None]:
    """Known values in their order, then the others by name."""
    return sorted(values, key=lambda v: (order.index(v) if v in order else len(order), v or ""))


def count(number: int, noun: str) -> str:
    """`1 run`, `5 runs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def percent(fraction: float | None, ci95: float | None = None) -> str:
    """A fraction as per cent with one digit and its interval, `69.5 ± 1.0`; an en dash for None."""
    if fraction is None:
        return ABSENT
    text = f"{100 * fraction:z.1f}".replace("-", _MINUS)
    return text if ci95 is None else f"{text} ± {100 * ci95:.1f}"


def paper_cell(paper: Mapping[str, Any] | None) -> str:
    """The paper's figure as printed there; an en dash where it has none."""
    if paper is None:
        return ABSENT
    return f"{paper['mean']:.1f}" + ("" if paper["interval"] is None else f" ± {paper['interval']:.1f}")


def duration(seconds: float) -> str:
    """Seconds with one digit below 100, none above."""
    return f"{seconds:.1f}" if seconds < 99.95 else f"{seconds:.0f}"


def size(n_bytes: float) -> str:
    """Bytes in the unit a person would choose."""
    if n_bytes < 999.5:
        return f"{n_bytes:.0f} B"
    units = ["kB", "MB", "GB", "TB"]
    number = n_bytes / 1000
    while number >= 999.5 and len(units) > 1:
        number /= 1000
        units.pop(0)
    return f"{number:.0f} {units[0]}" if number >= 99.95 else f"{number:.1f} {units[0]}"


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` characters, its middle replaced by an ellipsis where it is longer."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 3
    return f"{text[: width - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


def distinguish(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the keys whose values differ between rows, and the keys that all rows share."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    differing = [key for key in keys if len({repr(row.get(key)) for row in rows}) > 1]
    return differing, [key for key in keys if key not in differing]


def labels_and_title(rows: Sequence[Mapping[str, str]]) -> tuple[list[str], list[str]]:
    """Return a label for each row from what differs between them, and what all share, for the title."""
    differing, shared = distinguish(rows)
    labels = [", ".join(filter(None, (row[key] for key in differing))) for row in rows]
    return labels, [rows[0][key] for key in shared if rows[0][key]]


def row_name(row: Mapping[str, Any]) -> str:
    """Return the name of a stream's row: the model, and its encoding or what a baseline works on."""
    name = method_name(row)
    if row["encoding"] is None:
        if row["model"] == "pixel-ncm":
            return "NCM, pixels"
        if row["backbone"] == "none":
            return f"{name}, small network"
        features = f"{'backbone' if row['adaptation'] == 'none' else 'adapted'} features"
        tuned = row["model"] == "fsa-film"  # which only begins with these features
        return f"{name}, from {features}" if tuned else f"{name}, {features}"
    return f"{name}, frozen features" if row["adaptation"] == "none" else f"{name}, {row['encoding']}"


def row_order(row: Mapping[str, Any]) -> tuple[int, str, bool, int]:
    """Sort key: CNAPS models first, their encodings as in the paper, frozen features last; then baselines by name."""
    model, encoding, known = row["model"], row.get("encoding"), list(CNAPS_MODELS)
    rank = known.index(model) if model in known else len(known)
    frozen = row["adaptation"] == "none"
    return rank, model, frozen, ENCODINGS.index(encoding) if encoding in ENCODINGS else -1


_LONGEST = 14
"""Of a value in a name; digests are cut to it."""


@dataclass(frozen=True)
class Named:
    """A record with the short name that it would have alone."""

    name: str
    group: str
    """Names need to differ only within a group, such as a benchmark."""
    config: Mapping[str, Any]
    id: str


def distinct_names(records: Sequence[Named], ignore: Collection[str]) -> list[str]:
    """A name for each record: its own, with the settings in which records of one name and group differ.

    A setting that differs anywhere is named for all records of that name, so that rows of several groups still meet.
    `ignore` are settings that the group decides. Records that differ in nothing else are named by their ids.
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
        keys = _differing([(records[i].group, flat[i]) for i in indices])
        for i in indices:
            settings = [f"{key.split('.')[-1].replace('_', ' ')} {_short(flat[i].get(key))}" for key in keys]
            names[i] = ", ".join([names[i], *settings])
    twice = Counter((name, one.group) for name, one in zip(names, records, strict=True))
    return [
        f"{name}, {one.id}" if twice[name, one.group] > 1 else name
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
    """Return the keys whose values differ between settings of one group."""
    by_group: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for group, setting in settings:
        by_group[group].append(setting)
    found = dict.fromkeys(key for some in by_group.values() for key in distinguish(some)[0])
    return [key for key in dict.fromkeys(key for _, setting in settings for key in setting) if key in found]


def _short(value: Any) -> str:
    return ABSENT if value is None else str(value)[:_LONGEST]
