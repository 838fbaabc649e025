"""Records of speed: what was measured, against which bar, on which machine and how busy it was."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_cnaps.records.environment import describe_environment
from cl_cnaps.records.record import Record, records_under, write_record

VERB = "speed"
_BAR_DIRECTIONS, _MOST_LOST = 32, 0.3
"""Most points of accuracy that a class memory of so many directions may lose."""
_NOT_MEASURED = "Not measured in full yet: `cl-cnaps bench --out results` makes the record."


def write_speed_record(
    out: Path,
    figures: Sequence[Mapping[str, Any]],
    *,
    quick: bool,
    threads: int,
    load: Mapping[str, Mapping[str, Any]],
    name: str | None = None,
) -> Record:
    """Write the figures of a run as a record, one folder for each set of benchmarks; a later run replaces it.

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


def speed_table(results: Path) -> str:
    """Markdown: every figure of the records of full runs, and when, on what and under which load they were made."""
    lines = []
    for record, figures in _latest(results):
        lines += [_made(record), "", *markdown(figures), ""]
    return "\n".join(lines).rstrip() or _NOT_MEASURED


def speed_bars(results: Path) -> str:
    """Markdown: in one table the figures that are held against a bar, and on what the first was made."""
    latest = _latest(results)
    held = [
        {**figure, "measured": record.environment["finished"][:10]}
        for record, figures in latest
        for figure in figures
        if figure["bar"] is not None
    ]
    return "\n".join([_machine(latest[0][0]) + "*", "", *markdown(held)]) if latest else _NOT_MEASURED


def speed_sentence(results: Path) -> str:
    """Return a sentence on how many bars are met, and which are not."""
    held = [figure for _, figures in _latest(results) for figure in figures if figure["bar"] is not None]
    if not held:
        return _NOT_MEASURED
    missed = [
        f"{figure['benchmark']}: {figure['what']} ({figure['value']:,g}, bar {bar_words(figure)})"
        for figure in held
        if not figure["met"]
    ]
    met = f"{len(held) - len(missed)} of {len(held)} bars are met"
    return f"{met}; missed: {'; '.join(missed)}." if missed else f"{met}."


def scaling_table(results: Path) -> str:
    """Markdown: the figures of the benchmark `scaling` with what they were worked out from."""
    rows = []
    for _, figures in _latest(results):
        for figure in figures:
            if figure["benchmark"] == "scaling":
                parts = {**figure["details"], **figure["details"].get("assumed", {})}
                shown = [f"{key} {json.dumps(value)}" for key, value in parts.items() if key != "assumed"]
                rows.append(
                    f"| {figure['what']} | {figure['value']:,g} {figure['unit']} | {', '.join(shown)} |"
                )
    return "\n".join(["| | | from |", "| :--- | ---: | :--- |", *rows]) if rows else _NOT_MEASURED


def class_memory_table(results: Path) -> str:
    """Markdown: accuracy against bytes per class, and whether the number of directions with a bar loses too much."""
    path = results / "class_memory.csv"
    if not path.is_file():
        return (
            "Not measured yet: `python -m benchmarks.class_memory results/class_memory.csv` makes the table."
        )
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [
        "| classes | shots | directions | shortlist | bytes per class | accuracy | agrees with all directions |",
        "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    change = {}
    for row in rows:
        lines.append(
            f"| {row['classes']} of {row['benchmark']} | {row['shots']} | {row['directions']} | {row['shortlist']} | "
            f"{int(row['bytes_per_class']):,} | {100 * float(row['accuracy']):.2f} | "
            f"{100 * float(row['agreement']):.2f} |"
        )
        if row["directions"] == str(_BAR_DIRECTIONS):
            whole = next(
                one for one in rows if (one["benchmark"], one["directions"]) == (row["benchmark"], "all")
            )
            change[row["benchmark"]] = 100 * (float(row["accuracy"]) - float(whole["accuracy"]))
    verdicts = [
        f"{name} {points:+.2f} ({'met' if round(points, 2) >= -_MOST_LOST else '**missed**'})"
        for name, points in change.items()
    ]
    bar = f"{_BAR_DIRECTIONS} directions against all, in points, bar a loss of at most {_MOST_LOST:g}: "
    return "\n".join([*lines, "", bar + ", ".join(verdicts) + "."])


def _latest(results: Path) -> list[tuple[Record, list[Mapping[str, Any]]]]:
    """Records of full runs with their figures; of a benchmark that several records have, those of the latest."""
    folder = results / VERB
    records = [record for record in records_under(folder) if not record.config["quick"]]
    newest: dict[str, Record] = {}
    for record in sorted(records, key=lambda one: str(one.environment["finished"])):
        newest |= dict.fromkeys(record.config["benchmarks"], record)
    latest = [
        (record, [one for one in record.summary["figures"] if newest[one["benchmark"]] is record])
        for record in sorted(records, key=lambda one: str(one.path))
    ]
    return [(record, figures) for record, figures in latest if figures]


def markdown(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a table; figures may say on which day they were measured."""
    lines = ["| | measured | bar | |", "| :--- | ---: | ---: | :--- |"]
    for figure in figures:
        value = f"{figure['value']:,g}{_spread(figure['details'])} {figure['unit']}"
        met = {True: "met", False: "**missed**", None: ""}[figure["met"]]
        met += f", {figure['measured']}" if "measured" in figure else ""
        lines.append(f"| {figure['benchmark']}: {figure['what']} | {value} | {bar_words(figure)} | {met} |")
    return lines


def _spread(details: Mapping[str, Any]) -> str:
    """Least and most of the repeats, or the interval of their mean, where a figure has one."""
    if spread := details.get("spread"):
        return f" ({spread[0]:,g} to {spread[1]:,g})"
    return f" ± {details['ci95']:g}" if details.get("ci95") is not None else ""


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
