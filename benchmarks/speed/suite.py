"""All benchmarks, each in a process of its own, so that none finds what another left in memory or in caches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.speed.figures import Figure, figure
from benchmarks.speed.machine import load, warnings_about
from benchmarks.speed.script import NAMES, line

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Failure:
    """A benchmark that did not come to its end."""

    benchmark: str
    reason: str


def run_suite(
    names: Sequence[str], *, quick: bool, threads: int, before: Callable[[str], object]
) -> Iterator[Figure | Failure]:
    """Figures as they come; a benchmark that fails is told at its end and does not stop the others.

    `before` is called with the name of each benchmark while none is running.
    """
    for name in names:
        before(name)
        command = [sys.executable, "-m", "benchmarks.speed.script", name, "--json"]
        command += ["--threads", str(threads), *(["--quick"] if quick else [])]
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for row in process.stdout:
                    yield figure(json.loads(row))
                process.wait()
            except BaseException:
                process.kill()
                raise
            errors.seek(0)
            said = errors.read().strip().splitlines()
        if process.returncode < 0:
            yield Failure(name, f"ended by signal {-process.returncode}")
        elif process.returncode:
            yield Failure(name, said[-1] if said else f"exit code {process.returncode}")


def bench(only: Sequence[str], *, quick: bool, threads: int, out: Path, as_json: bool, quiet: bool) -> None:
    """Run the benchmarks, print their figures and write the record."""
    from cl_cnaps.report.speed import write_speed_record

    if unknown := [name for name in only if name not in NAMES]:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(NAMES)}", param_hint="--only")
    names = [name for name in NAMES if not only or name in only]
    looks: dict[str, dict[str, Any]] = {}

    def look(when: str) -> None:
        looks[when] = load()
        for sentence in warnings_about(looks[when]):
            click.echo(f"warning: {sentence}", err=True)

    figures: list[dict[str, Any]] = []
    failed = []
    for outcome in run_suite(names, quick=quick, threads=threads, before=look):
        if not isinstance(outcome, Figure):
            failed.append(outcome)
            click.echo(f"{outcome.benchmark} failed: {outcome.reason}", err=True)
            continue
        figures.append(outcome.as_json())
        if as_json:
            click.echo(json.dumps(figures[-1]))
        elif not quiet:
            click.echo(f"{outcome.benchmark}: {line(outcome)}", err=True)
    if figures:
        look("end")
        whole = not only and not failed
        record = write_speed_record(
            out, figures, quick=quick, threads=threads, load=looks, name="all" if whole else None
        )
        drawn = _draw(record) if "growth" in record.config["benchmarks"] else None
        if not as_json:
            if not quiet:
                _table(figures)
            click.echo("\n".join(str(path) for path in (drawn, record.path) if path))
    if failed:
        raise click.ClickException(f"{', '.join(one.benchmark for one in failed)} did not come to an end")


def _draw(record: Any) -> Path:
    from benchmarks.speed.plot import draw_growth

    return draw_growth(record)


def _table(figures: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    from cl_cnaps.commands.display import terminal
    from cl_cnaps.report.speed import bar_words

    table = Table("benchmark", "what", "measured", "bar", "")
    for one in figures:
        met = {True: "met", False: "missed", None: ""}[one["met"]]
        value = f"{one['value']:,g} {one['unit']}"
        table.add_row(one["benchmark"], one["what"], value, bar_words(one), met)
    terminal().print(table)
