"""Learning curves as a table: for the terminal and, with the same cells, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.console import JustifyMethod
from rich.table import Table

from cl_cnaps.errors import BadInputError
from cl_cnaps.results.active import Entry
from cl_cnaps.results.active_curves import BASELINE
from cl_cnaps.results.few_shot_tables import SEEN_MARK, seen
from cl_cnaps.results.wording import ABSENT, count, method_name, percent

FEATURES = {"film": "adapted", "none": "frozen (FFE)"}
"""What the paper calls a fixed feature extractor."""


@dataclass(frozen=True)
class _Column:
    title: str
    short: str
    cell: Callable[[Entry], str]
    numeric: bool = True


def _seen_source(entry: Entry) -> str:
    source: str = entry["source"]
    return source + (SEEN_MARK if seen(entry) else "")


# What the rows share is said once, above the table; what differs gets a column.
_SETTING = (
    _Column("source", "source", _seen_source, numeric=False),
    _Column("alphabet", "alphabet", lambda e: e["alphabet"] or "", numeric=False),
    _Column("model", "model", method_name, numeric=False),
    _Column("backbone", "backbone", lambda e: e["backbone"], numeric=False),
    _Column("features", "features", lambda e: FEATURES[e["adaptation"]], numeric=False),
    _Column("labels", "labels", lambda e: f"{e['labels'][0]} to {e['labels'][-1]} labels"),
    _Column("runs", "runs", lambda e: count(e["runs"], "run")),
)
_COLUMNS = (
    _Column("strategy", "strategy", lambda e: e["strategy"], numeric=False),
    _Column("first, %", "first %", lambda e: _point(e, 0)),
    _Column("last, %", "last %", lambda e: _point(e, -1)),
    _Column("area, %", "area %", lambda e: percent(e["area"], e["area_ci95"])),
    _Column("gain over random, points", "gain", lambda e: _gain(e["gain"])),
    _Column("labels to reach", "to reach", lambda e: _reach(e["reach"])),
)


def active_table(entries: Sequence[Entry]) -> Table:
    """A table for the terminal, one row for each task, kind of features and strategy, and means over alphabets."""
    heading, columns, groups = _layout(entries)
    table = Table(
        title=heading,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    # The setting of a group stands on a line of its own: beside the numbers there is no room for it.
    setting = len(columns) - len(_COLUMNS)
    for column in _COLUMNS:
        side: JustifyMethod = "right" if column.numeric else "left"
        table.add_column(column.short, justify=side, overflow="fold", no_wrap=column.numeric)
    for rows in groups:
        if setting:
            table.add_row(" · ".join(filter(None, rows[0][:setting])), style="bold")
        for i, row in enumerate(rows):
            cells = (cell.replace(" ± ", "±") for cell in row[setting:])
            table.add_row(*cells, end_section=i == len(rows) - 1)
    return table


def active_markdown(entries: Sequence[Entry]) -> str:
    """The same table in Markdown, with the shared setting above it and what must be known below."""
    heading, columns, groups = _layout(entries)
    rows = [[column.title for column in columns], ["---:" if c.numeric else ":---" for c in columns]]
    rows += [row for group in groups for row in group]
    marked = heading.replace(SEEN_MARK, f"\\{SEEN_MARK}")
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    notes = (f"- {note.replace(SEEN_MARK, f'{chr(92)}{SEEN_MARK}')}" for note in active_notes(entries))
    return "\n".join([f"**{marked}**", "", *table, "", *notes]) + "\n"


def _layout(entries: Sequence[Entry]) -> tuple[str, list[_Column], list[list[list[str]]]]:
    """Heading, columns, and rows of cells in groups: those of one curve's rivals stand together."""
    if not entries:
        raise BadInputError("a table of learning curves needs at least one entry")
    differing = [column for column in _SETTING if len({column.cell(e) for e in entries}) > 1]
    shared = [column.cell(entries[0]) for column in _SETTING if column not in differing]
    columns = [*differing, *_COLUMNS]
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        groups.setdefault(tuple(column.cell(entry) for column in _SETTING), []).append(entry)
    rows = [[[column.cell(entry) for column in columns] for entry in group] for group in groups.values()]
    rows += [[[column.cell(mean) for column in columns] for mean in group] for group in _means(entries)]
    return " · ".join(filter(None, shared)), columns, rows


def _means(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Means over the alphabets of a model, where there are several: an entry for each strategy."""
    kinds: dict[tuple[str, ...], dict[str, list[Entry]]] = {}
    for entry in entries:
        keys = ("source", "backbone", "adaptation", "weights_source")
        kind = (method_name(entry), *(str(entry[key]) for key in keys))
        kinds.setdefault(kind, {}).setdefault(entry["strategy"], []).append(entry)
    found = []
    for by_strategy in kinds.values():
        means = [_mean(mine) for mine in by_strategy.values() if len({e["alphabet"] for e in mine}) > 1]
        if means:
            found.append(means)
    return found


def _mean(entries: Sequence[Entry]) -> Entry:
    """An entry for the table whose figures are means over alphabets; no interval, as alphabets are no sample."""

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    gains = [entry["gain"]["mean"] for entry in entries if entry["gain"]]
    ends = {i: mean([entry["accuracy"]["mean"][i] for entry in entries]) for i in (0, -1)}
    bounds = [round(mean([entry["labels"][i] for entry in entries])) for i in (0, -1)]
    return {
        **entries[0],
        "alphabet": f"mean of {len(entries)}",
        "labels": bounds,
        "accuracy": {"mean": [ends[0], ends[-1]], "ci95": [None, None]},
        "area": mean([entry["area"] for entry in entries]),
        "area_ci95": None,
        "gain": {"mean": mean(gains), "ci95": None} if gains else None,
        "reach": None,
    }


def active_notes(entries: Sequence[Entry]) -> list[str]:
    """What must be known to read the table."""
    notes = ["area: under the curve, as a mean accuracy over the labels."]
    if any(entry["gain"] for entry in entries):
        notes.append("gain: of area over random, run by run on the same images.")
    goals = {entry["reach"]["accuracy"] for entry in entries}
    what = f"at least {percent(goals.pop())} %" if len(goals) == 1 else _usual_goal(entries)
    notes.append(f"to reach: fewest labels with which the mean accuracy is {what}.")
    if max(entry["runs"] for entry in entries) > 1:
        notes.append("±: 95 % interval over runs (Student's t).")
    if any(entry["classes_seen_in_pretraining"] for entry in entries):
        known = {e["seen_in_pretraining"] for e in entries if e["classes_seen_in_pretraining"]}
        notes.append(f"{SEEN_MARK} classes not new to the backbone: {'; '.join(sorted(known))}.")
    if any(entry.get("classes_seen_in_training") for entry in entries):
        known = {e["seen_in_training"] for e in entries if e.get("classes_seen_in_training")}
        notes.append(f"{SEEN_MARK} classes not new to the adaptation: {'; '.join(sorted(known))}.")
    return notes


def _usual_goal(entries: Sequence[Entry]) -> str:
    if any(entry["strategy"] == BASELINE for entry in entries):
        return "at least what random ends with"
    return "at least the lowest that a strategy ends with"


def _point(entry: Entry, place: int) -> str:
    return percent(entry["accuracy"]["mean"][place], entry["accuracy"]["ci95"][place])


def _gain(gain: Mapping[str, Any] | None) -> str:
    if gain is None:
        return ABSENT
    text = percent(gain["mean"], gain["ci95"])
    return f"+{text}" if text[0].isdigit() and gain["mean"] > 0 else text


def _reach(reach: Mapping[str, Any] | None) -> str:
    return ABSENT if reach is None or reach["labels"] is None else str(reach["labels"])
