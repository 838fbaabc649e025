"""The list of all records, and a page for each: configuration, environment, how to run it again, the numbers."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cl_cnaps.records.environment import repeating
from cl_cnaps.records.record import Record
from cl_cnaps.report.labels import ABSENT, adaptation_words, flattened, model_name, percent
from cl_cnaps.report.site.active import active_task
from cl_cnaps.report.site.gather import Gathered, Page
from cl_cnaps.report.table import EMPTY, Cell, Column, Table, TableRow, words
from cl_cnaps.report.view import record_link, verb_of

SHOWN_ROWS = 200
"""Of a table of raw numbers; the file beside the page has them all."""


@dataclass(frozen=True)
class RawTable:
    """The start of a CSV file of a record."""

    name: str
    header: list[str]
    rows: list[list[str]]
    total: int
    size: int


def records_page(found: Gathered) -> Page:
    """Every record, and the folders that could not be read."""
    return Page(
        "records.html",
        "Records",
        template="records.html",
        content={"table": records_table(found), "unreadable": found.unreadable},
    )


def records_table(found: Gathered) -> Table:
    """A row for each record."""
    rows = []
    for record in found.records.values():
        environment = record.environment
        command = environment.get("command")
        commit = str((environment.get("code") or {}).get("commit") or "")[:10]
        finished = str(environment.get("finished") or "")
        rows.append(
            TableRow(
                [
                    words(record_title(record), record_link(record)),
                    words(verb_of(record)),
                    words(str(record.summary.get("name", record.name))),
                    Cell(finished[:16].replace("T", " "), finished, state="date") if finished else EMPTY,
                    Cell(commit, commit, state="code") if commit else EMPTY,
                    Cell(command, command, state="code") if command else EMPTY,
                ]
            )
        )
    columns = [
        Column(title, numeric=False) for title in ("record", "verb", "name", "finished", "commit", "command")
    ]
    return Table("records", "All records", columns, rows)


def record_title(record: Record) -> str:
    """Model, encoding and features in words; the record's name where it has no model."""
    config = record.config
    if "model" not in config:
        return str(record.summary.get("name", record.name))
    encoding = config.get("encoding")
    parts = (
        model_name(str(config["model"])),
        f"{encoding} encoding" if encoding else "",
        adaptation_words(config.get("adaptation")) if config.get("backbone") != "none" else "",
    )
    return ", ".join(filter(None, parts))


def record_page(record: Record) -> Page:
    """The page of one record."""
    environment = dict(record.environment)
    command = environment.pop("command", None)
    return Page(
        record_link(record),
        record_title(record),
        template="record.html",
        content={
            "verb": verb_of(record),
            "name": str(record.summary.get("name", record.name)),
            "id": record.id,
            "folder": record.path.as_posix(),
            "command": repeating(command) if command else None,
            "commit": (environment.get("code") or {}).get("commit"),
            "outcome": _outcome(record),
            "config": _facts(record.config),
            "environment": _facts(environment),
            "summary": json.dumps(record.summary, indent=2, ensure_ascii=False),
            "raw": [_raw(path) for path in csv_files(record)],
            "raw_folder": Path(record_link(record)).stem,
        },
    )


def csv_files(record: Record) -> list[Path]:
    """The raw numbers of a record."""
    return sorted(record.path.glob("*.csv"))


def _outcome(record: Record) -> list[tuple[str, str]]:
    """The main numbers of a record, in per cent; none of a verb that has no section here."""
    summary = record.summary
    match verb_of(record):
        case "stream":
            heads = summary["rows"]
            return [
                (f"final accuracy, {one['head']} head", _estimate(one["final_accuracy"])) for one in heads
            ]
        case "evaluate":
            return [(_task_words(entry), _estimate(entry["accuracy"])) for entry in summary["rows"]]
        case "active":
            return [
                (f"area, {active_task(row)}, {row['strategy']}", percent(row["area"], row["area_ci95"]))
                for row in summary["rows"]
            ]
        case "ablate":
            return [
                (f"{row['title']}: {_task_words(entry)}", _estimate(entry["accuracy"]))
                for row in summary["rows"]
                for entry in row["results"]
            ]
    return []


def _task_words(entry: Mapping[str, Any]) -> str:
    return f"{entry['title']}, {entry['shape']}, {entry['queries']} queries"


def _estimate(figure: Mapping[str, Any]) -> str:
    return percent(figure["mean"], figure["ci95"])


def _facts(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings and their values, one level deep, as text."""
    return [(key, _text(value)) for key, value in flattened(tree).items()]


def _text(value: Any) -> str:
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _raw(path: Path) -> RawTable:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        rows = list(islice(reader, SHOWN_ROWS))
        total = len(rows) + sum(1 for _ in reader)
    return RawTable(path.name, header, rows, total, path.stat().st_size)
