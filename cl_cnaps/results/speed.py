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
) -> Record:
    """Write the figures of a run as a record, one folder for each set of benchmarks; a later run takes its place."""
    names = list(dict.fromkeys(figure["benchmark"] for figure in figures))
    bars = [figure for figure in figures if figure["met"] is not None]
    return write_record(
        out,
        VERB,
        ("quick-" if quick else "") + (names[0] if len(names) == 1 else "all"),
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


def speed_table(results: Path) -> str:
    """Markdown: every figure of the records of full runs, and when, on what and under which load they were made."""
    folder = results / VERB
    records = (
        [record for record in records_under(folder) if not record.config["quick"]] if folder.is_dir() else []
    )
    if not records:
        return "Not measured in full yet: `cl-cnaps bench --out results` makes the record."
    lines = []
    for record in sorted(records, key=lambda one: str(one.path)):
        lines += [_made(record), "", *markdown(record.summary["figures"]), ""]
    return "\n".join(lines).rstrip()


def markdown(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a table."""
    lines = ["| | measured | bar | |", "| :--- | ---: | ---: | :--- |"]
    for figure in figures:
        value = f"{figure['value']:,g} {figure['unit']}"
        met = {True: "met", False: "**missed**", None: ""}[figure["met"]]
        lines.append(f"| {figure['benchmark']}: {figure['what']} | {value} | {bar_words(figure)} | {met} |")
    return lines


def bar_words(figure: Mapping[str, Any]) -> str:
    """The bar of a figure, or nothing."""
    if figure["bar"] is None:
        return ""
    return f"{'at least' if figure['at_least'] else 'at most'} {figure['bar']:g}"


def _made(record: Record) -> str:
    environment = record.environment
    load = environment["load"]
    cores = environment["cpu"]["cores"]
    busy = max(state["cores_taken_by_others"] for state in load.values())
    averages = ", ".join(f"{when} {state['load_average']}" for when, state in load.items())
    others = (
        f"other processes took up to {busy:g} of {cores} cores" if busy else "no other process took a core"
    )
    return (
        f"*{record.config['threads']} threads on {environment['cpu']['model']} ({cores} cores), PyTorch "
        f"{environment['packages']['torch']}, Python {environment['python']}, {environment['finished'][:16]}Z. Load "
        f"average {averages}; {others}.*"
    )
