"""Time per task and memory per class over a long stream, from a record of speed."""

from __future__ import annotations

from pathlib import Path

from cl_cnaps.errors import MissingDataError
from cl_cnaps.records.record import Record


def draw_growth(record: Record) -> Path:
    """Draw the growth of a stream into the record's figures; returns the file."""
    from matplotlib.figure import Figure

    figures = [one for one in record.summary["figures"] if one["benchmark"] == "growth"]
    details = next((one["details"] for one in figures if "seconds" in one["details"]), None)
    if details is None:
        raise MissingDataError(f"the record {record.path} has no growth benchmark")
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    tasks = range(1, len(details["seconds"]) + 1)
    left.plot(tasks, [1000 * value for value in details["seconds"]], ".", markersize=3)
    left.set(xlabel="task", ylabel="ms to learn and answer it")
    left.set_ylim(0, 3 * 1000 * sorted(details["seconds"])[len(tasks) // 2])
    right.plot(tasks, [value / 1000 for value in details["bytes_per_class"]])
    right.set(xlabel="task", ylabel="kB per class", ylim=(0, None))
    file = record.path / "figures" / "growth.png"
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=150)
    return file
