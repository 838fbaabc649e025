"""Records of speed: what was measured, against which bar, on which machine and how busy it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_cnaps.results.environment import describe_environment
from cl_cnaps.results.record import Record, records_under, write_record

VERB = "speed"


def write_speed_record(
    out: Path,
    figures: Sequence[Mapping[str, Any]],
    *,
    quick: bool,
    threads: int,
    load: Mapping[str, Mapping[str, Any]],
    name: str | None = None,
) -> Record:
    """Write the figures of a run as a record, one folder for each set of benchmarks; a later run takes its place.

    `load` is how busy the machine was, by when it was looked at; `name` the record's, that of its benchmarks if none.
    """
    names = list(dict.fromkeys(figure["benchmark"] for figure in figures))
    bars = [figure for figure in figures if figure["met"] is not None]
    return write_record(
        out,
        VERB,
        ("quick-" if quick else "") + (name or "-".join(names)),
        {"benchmarks": names, "quick": quick, "threads": threads},
        environment=describe_environment({"load": dict(load)}),
        tables={"figures": [_row(figure) for figure in figures]},
        summary={
            "bars": len(bars),
            "met": sum(figure["met"] for figure in bars),
            "figures": [dict(figure) for figure in figures],
        },
    )


def _row(figure: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in figure.items() if key != "details"} | {
        "details": json.dumps(figure["details"])
    }


def speed_table(results: Path, *, bars_only: bool = False) -> str:
    """Markdown: every figure of the records of full runs, and when, on what and under which load they were made.

    With `bars_only` in one table, those alone that are held against a bar, and on what the first was made.
    """
    folder = results / VERB
    records = (
        [record for record in records_under(folder) if not record.config["quick"]] if folder.is_dir() else []
    )
    if not records:
        return "Not measured in full yet: `cl-cnaps bench --out results` makes the record."
    # Of a benchmark that several records have, the latest.
    newest: dict[str, Record] = {}
    for record in sorted(records, key=lambda one: str(one.environment["finished"])):
        newest |= dict.fromkeys(record.config["benchmarks"], record)
    if bars_only:
        held = [
            {**figure, "measured": record.environment["finished"][:10]}
            for record in sorted(records, key=lambda one: str(one.path))
            for figure in record.summary["figures"]
            if newest[figure["benchmark"]] is record and figure["bar"] is not None
        ]
        return "\n".join([_machine(records[0]) + "*", "", *markdown(held)])
    lines = []
    for record in sorted(records, key=lambda one: str(one.path)):
        shown = [figure for figure in record.summary["figures"] if newest[figure["benchmark"]] is record]
        if shown:
            lines += [_made(record), "", *markdown(shown), ""]
    return "\n".join(lines).rstrip()


def markdown(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a table; figures may say on which day they were measured."""
    lines = ["| | measured | bar | |", "| :--- | ---: | ---: | :--- |"]
    for figure in figures:
        value = f"{figure['value']:,g} {figure['unit']}"
        met = {True: "met", False: "**missed**", None: ""}[figure["met"]]
        met += f", {figure['measured']}" if "measured" in figure else ""
        lines.append(f"| {figure['benchmark']}: {figure['what']} | {value} | {bar_words(figure)} | {met} |")
    return lines


def bar_words(figure: Mapping[str, Any]) -> str:
    """The bar of a figure, or nothing."""
    if figure["bar"] is None:
        return ""
    return f"{'at least' if figure['at_least'] else 'at most'} {figure['bar']:g}"


def _machine(record: Record) -> str:
    environment = record.environment
    return (
        f"*{record.config['threads']} threads on {environment['cpu']['model']} ({environment['cpu']['cores']} cores), "
        f"PyTorch {environment['packages']['torch']}, Python {environment['python']}"
    )


def _made(record: Record) -> str:
    environment = record.environment
    cores = environment["cpu"]["cores"]
    busy = max(state["cores_taken_by_others"] for state in environment["load"].values())
    others = (
        f"other processes took up to {busy:g} of {cores} cores"
        if busy
        else "no other process took half a core"
    )
    return (
        f"{_machine(record)}, {environment['finished'][:16]}Z. When it was looked at, before each benchmark and at the "
        f"end, {others}.*"
    )
