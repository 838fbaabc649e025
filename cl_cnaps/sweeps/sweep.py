"""Run what has no finished record yet, try a failed run once more, go on whatever fails; and the table of it."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cl_cnaps.records.record import Record, put_record, read_record, readable_record
from cl_cnaps.report.labels import ABSENT, duration, paper_cell, percent
from cl_cnaps.report.table import Column, Table, TableRow, words
from cl_cnaps.report.view import Headline
from cl_cnaps.sweeps.engines import Engine, Failure, Reply, Task, failure_of

ATTEMPTS = 2

Status = Literal["found", "made", "absent", "failed"]


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    words: str
    """The options that distinguish it from the others."""
    verb: str
    arguments: tuple[str, ...]
    """Of the verb's command line."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    number: int
    """Its position in the sweep, from 0."""
    run: PlannedRun
    status: Status
    attempts: int
    seconds: float = 0.0
    """Of the attempt that made the record."""
    path: Path | None = None
    """Where its record is, or would be."""
    record: Record | None = None
    others: tuple[Record, ...] = ()
    """Further records of a run with several models or encodings."""
    reason: str | None = None
    """Why it failed, in one line."""


FailureLog = Callable[[PlannedRun, int, Failure], None]
"""Called for every failed attempt with the run, the number of the attempt, and the failure."""


def sweep(
    runs: Sequence[PlannedRun],
    engine: Engine,
    out: Path,
    *,
    threads: int,
    log: FailureLog,
    look_only: bool = False,
    keep: Path | None = None,
) -> Iterator[Outcome]:
    """The outcome of every run, as they end; `engine` is entered already.

    With `look_only` nothing is run: outcomes say which records are there. Features are kept in the folder `keep`, if
    there is one. A run that failed waits at the end of
    the queue, so that what was in its way may be gone. A record that cannot be read does not count as there, and the
    run is made anew.
    """
    attempts: Counter[int] = Counter()
    readable: set[str] = set()
    waiting, under_way = deque(range(len(runs))), 0
    while waiting or under_way:
        while waiting and (engine.room is None or under_way < engine.room):
            number = waiting.popleft()
            attempts[number] += 1
            task = make_task(
                runs[number], engine, out, threads, look_only=look_only, keep=keep, readable=readable
            )
            engine.submit(number, task)
            under_way += 1
        number, answer = engine.wait()
        under_way -= 1
        run, records = runs[number], list[Record]()
        if isinstance(answer, Reply) and answer.status != "absent":
            try:
                made = ((answer.record, answer.files), *answer.others)
                records = [_record(out, record, files) for record, files in made]
            except Exception as error:
                answer = failure_of(error)
        if isinstance(answer, Reply):
            yield Outcome(
                number,
                run,
                answer.status,
                attempts[number],
                answer.seconds,
                out / answer.record,
                records[0] if records else None,
                tuple(records[1:]),
            )
            continue
        log(run, attempts[number], answer)
        if attempts[number] < ATTEMPTS and not look_only:
            waiting.append(number)
        else:
            yield Outcome(number, run, "failed", attempts[number], reason=answer.reason)


def no_failures(_run: PlannedRun, _attempt: int, _failure: Failure) -> None:
    """A log that keeps nothing, for a sweep that only looks."""


def append_failures(path: Path) -> FailureLog:
    """A log that appends each failure to a text file; the file is not there before there is one."""

    def log(run: PlannedRun, attempt: int, failure: Failure) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        with path.open("a", encoding="utf-8") as file:
            file.write(
                f"{when}  {run.words}, attempt {attempt} of {ATTEMPTS}\n{failure.details.rstrip()}\n\n"
            )

    return log


def make_task(
    run: PlannedRun,
    engine: Engine,
    out: Path,
    threads: int,
    *,
    look_only: bool,
    keep: Path | None,
    readable: set[str],
) -> Task:
    """A run with the names of the records that are there by now: one may have come from elsewhere.

    Each record is read once, and then is one of those that are `readable`.
    """
    there = {path.parent.relative_to(out).as_posix() for path in out.glob(f"{run.verb}/*/*/summary.json")}
    readable |= {name for name in there - readable if readable_record(out / name) is not None}
    return Task(
        run.verb,
        run.arguments,
        threads,
        str(out.resolve()) if engine.shared_folder else None,
        frozenset(there & readable),
        look_only,
        None if keep is None else str(keep.resolve()),
    )


def _record(out: Path, record: str, files: Mapping[str, bytes] | None) -> Record:
    if files is None:
        return read_record(out / record)
    verb, name, _ = record.split("/")
    return put_record(out, verb, name, files)


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
    notes = [f"Paper: {', '.join(labels)}; {caveat}."]
    return notes + ["* Test classes are not new to the model: no measure of learning new ones."] * seen


def tally(outcomes: Sequence[Outcome]) -> str:
    """Return `3 done, 1 there before, 2 FAILED`."""
    counts: Counter[str] = Counter(outcome.status for outcome in outcomes)
    return ", ".join(f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status])
