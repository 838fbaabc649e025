"""`cl-cnaps bench`: how fast this is on your machine, against plain ways of doing the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.benchmarking.script import NAMES
from cl_cnaps.commands import options
from cl_cnaps.commands.terminal import terminal

if TYPE_CHECKING:
    from cl_cnaps.results.record import Record


@click.command()
@click.option("--only", type=click.Choice(NAMES), multiple=True, help="This benchmark; may be given again.")
@click.option("--quick", is_flag=True, help="Small cases, in a minute or two: to see that all of it works.")
@click.option(
    "--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Threads PyTorch uses."
)
@options.out("runs")
@options.as_json
@options.quiet
def bench(only: tuple[str, ...], quick: bool, threads: int, out: Path, as_json: bool, quiet: bool) -> None:
    """Measure speed against plain ways of doing the same.

    Every number is a ratio to the textbook way of doing the same work, timed in turns in one run. The whole suite
    takes half an hour on two cores; let nothing else run meanwhile.

    \b
    Examples:
      cl-cnaps bench --quick
      cl-cnaps bench --only head --only embed
      cl-cnaps bench --out results
    """
    from cl_cnaps.benchmarking.figures import Figure
    from cl_cnaps.benchmarking.machine import load, warnings_about
    from cl_cnaps.benchmarking.script import line
    from cl_cnaps.benchmarking.suite import run_suite
    from cl_cnaps.results.speed import write_speed_record

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


def _draw(record: Record) -> Path:
    from cl_cnaps.results.plots.growth import draw_growth

    return draw_growth(record)


def _table(figures: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    from cl_cnaps.results.speed import bar_words

    table = Table("benchmark", "what", "measured", "bar", "")
    for figure in figures:
        met = {True: "met", False: "missed", None: ""}[figure["met"]]
        value = f"{figure['value']:,g} {figure['unit']}"
        table.add_row(figure["benchmark"], figure["what"], value, bar_words(figure), met)
    terminal().print(table)
