"""The outcomes of a sweep as a table: what ran, how it ended, our number and the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from cl_cnaps.results.wording import ABSENT, duration, paper_cell, percent
from cl_cnaps.sweeps.sweep import Outcome

STATUS_WORDS = {"made": "done", "found": "there before", "absent": "to run", "failed": "FAILED"}


@dataclass(frozen=True)
class Headline:
    """A number that a record is made for."""

    of: str
    """Which of the record's numbers: a head, a data set and shape of tasks, ..."""
    mean: float
    """A fraction of 1."""
    ci95: float | None
    paper: Mapping[str, Any] | None
    """The paper's figure in per cent with its label, where it has one."""


def sweep_table(title: str, outcomes: Sequence[tuple[Outcome, Sequence[Headline]]]) -> Table:
    """One line for each number of each run; a run without numbers has one line."""
    labels = {line.paper["label"] for _, lines in outcomes for line in lines if line.paper}
    table = Table(
        title=title,
        caption=f"Paper: {', '.join(sorted(labels))}." if labels else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for name in ("run", "status", "of"):
        table.add_column(name, overflow="fold")
    for name in ("accuracy %", "paper %", "sec."):
        table.add_column(name, justify="right", no_wrap=True)
    for outcome, lines in outcomes:
        status = STATUS_WORDS[outcome.status]
        seconds = duration(outcome.seconds) if outcome.status == "made" else ABSENT
        if not lines:
            table.add_row(outcome.run.words, status, outcome.reason or "", ABSENT, ABSENT, seconds)
        for number, line in enumerate(lines):
            first = number == 0
            table.add_row(
                outcome.run.words if first else "",
                status if first else "",
                line.of,
                percent(line.mean, line.ci95).replace(" ± ", "±"),
                paper_cell(line.paper).replace(" ± ", "±"),
                seconds if first else "",
            )
    return table


def tally(outcomes: Sequence[Outcome]) -> str:
    """`3 done, 1 there before, 2 FAILED`."""
    counts: Counter[str] = Counter(outcome.status for outcome in outcomes)
    return ", ".join(f"{counts[status]} {said}" for status, said in STATUS_WORDS.items() if counts[status])
