"""The report of a large sweep: a site of 2,000 made-up records, built by `cl-cnaps report` in a process of its own.

The records are copies of the streams in results/, all their tables, under other seeds and with other accuracies.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import seconds
from cl_cnaps.errors import MissingDataError
from cl_cnaps.records.record import Record, records_under, write_record

RECORDS, REPEATS = 2000, 3
_BAR = 20.0
_COMMAND = "from cl_cnaps.commands.main import main; main()"
_TABLE = "accuracy"
RESULTS = Path(__file__).parents[2] / "results"


def measure(quick: bool) -> Iterator[Figure]:
    """Make the records, then build the site of all of them."""
    number = 20 if quick else RECORDS
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-report-") as folder:
        records, site = Path(folder) / "records", Path(folder) / "site"
        making = seconds(lambda: make_records(records, number))
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _COMMAND,
            "report",
            str(records),
            "--out",
            str(site),
            "-q",
        ]
        taken = sorted(
            seconds(lambda: subprocess.run(command, check=True)) for _ in range(1 if quick else REPEATS)
        )
        pages = sum(1 for _ in site.rglob("*.html"))
    details = {
        "spread": [round(taken[0], 1), round(taken[-1], 1)],
        "pages": pages,
        "make_records_s": round(making, 1),
    }
    what = f"report of {number} records"
    yield Figure(
        "report", what, round(taken[len(taken) // 2], 1), "s", bar=_BAR, at_least=False, details=details
    )


def make_records(out: Path, number: int) -> None:
    """Write so many records of streams."""
    templates = [record for record in records_under(RESULTS) if record.verb == "stream"]
    if not templates:
        raise MissingDataError(f"{RESULTS} has no records of streams to make others from")
    rng = np.random.default_rng(0)
    tables = [
        {file.stem: template.table(file.stem) for file in template.path.glob("*.csv")}
        for template in templates
    ]
    for i in range(number):
        which = i % len(templates)
        _write(out, templates[which], tables[which], 1000 + i, rng)


def _write(
    out: Path,
    template: Record,
    tables: Mapping[str, list[dict[str, str]]],
    seed: int,
    rng: np.random.Generator,
) -> None:
    shift = rng.uniform(-0.05, 0.05)
    summary = _shifted(template.summary, shift)
    rows: list[dict[str, Any]] = [
        {**row, "accuracy": min(1.0, max(0.0, float(row["accuracy"]) + shift))} for row in tables[_TABLE]
    ]
    config = {**template.config, "seed": seed}
    environment = template.environment
    write_record(
        out,
        "stream",
        template.name,
        config,
        environment=environment,
        tables={**tables, _TABLE: rows},
        summary=summary,
    )


def _shifted(value: Any, shift: float) -> Any:
    """The same summary with other final accuracies."""
    if isinstance(value, dict):
        return {
            key: _moved(item, shift) if key == "final_accuracy" else _shifted(item, shift)
            for key, item in value.items()
        }
    return [_shifted(item, shift) for item in value] if isinstance(value, list) else value


def _moved(accuracy: Any, shift: float) -> Any:
    if not isinstance(accuracy, dict):
        return accuracy
    moved = dict(accuracy)
    moved["mean"] = accuracy["mean"] + shift
    moved["per_run"] = [one + shift for one in accuracy["per_run"]]
    return moved
