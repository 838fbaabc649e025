"""The outcomes of a sweep as a table: what ran, how it ended, our number and the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cl_cnaps.report.labels import ABSENT, duration, paper_cell, percent
from cl_cnaps.report.table import Column, Table, TableRow, words
from cl_cnaps.report.view import Headline
from cl_cnaps.sweeps.sweep import Outcome

STATUS_WORDS = {"made": "done", "found": "there before", "absent": "to run", "failed": "FAILED"}


def sweep_table(title: str, outcomes: Sequence[tuple[Outcome, Sequence[Headline]]]) -> Table:
    """Make a table with a line for each number of each run; a run without numbers has one line."""
    labels = {line.paper["label"] for _, lines in outcomes for line in lines if line.paper}
    rows: list[list[str]] = []
    for outcome, lines in outcomes:
        first = [outcome.run.words, STATUS_WORDS[outcome.status]]
        seconds = duration(outcome.seconds) if outcome.status == "made" else ABSENT
        if not lines:
            rows.append([*first, outcome.reason or "", ABSENT, ABSENT, seconds])
        for number, line in enumerate(lines):
            cells = [line.of, percent(line.mean, line.ci95), paper_cell(line.paper)]
            rows.append([*first, *cells, seconds] if number == 0 else ["", "", *cells, ""])
    return Table(
        "",
        title,
        [
            *(Column(name, numeric=False) for name in ("run", "status", "of")),
            *(Column(name) for name in ("accuracy %", "paper %", "sec.")),
        ],
        [TableRow([words(text) for text in row]) for row in rows],
        notes=_notes(sorted(labels), any("*" in line.of for _, lines in outcomes for line in lines)),
    )


def _notes(labels: Sequence[str], seen: bool) -> list[str]:
    if not labels:
        return []
    caveat = "its models have another backbone and training; the tables of each record name what differs"
    said = [f"Paper: {', '.join(labels)}; {caveat}."]
    return said + ["* Test classes are not new to the model: no measure of learning new ones."] * seen


def tally(outcomes: Sequence[Outcome]) -> str:
    """Return `3 done, 1 there before, 2 FAILED`."""
    counts: Counter[str] = Counter(outcome.status for outcome in outcomes)
    return ", ".join(f"{counts[status]} {said}" for status, said in STATUS_WORDS.items() if counts[status])
