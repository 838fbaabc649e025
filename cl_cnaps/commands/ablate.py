"""`cl-cnaps ablate`: the paper's ablations on the images that are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.task_bars import task_bars
from cl_cnaps.commands.terminal import terminal

if TYPE_CHECKING:
    from cl_cnaps.results.ablation import AblationRecord

ABLATION_NAMES = ("metric", "gmm", "transduction", "refinement", "shots", "queries")


def _names(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in text.split(",")) if text is not None else ()


def _by_row(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`ROW=FILE` of each time the option is given."""
    weights = {}
    for text in given:
        row, equals, file = text.partition("=")
        if not equals or not row or not file:
            raise click.BadParameter(
                f"{text!r} does not say which row: give ROW=FILE, such as plus=mine.safetensors"
            )
        weights[row] = file
    return weights


@click.command()
@click.argument("which", type=click.Choice(ABLATION_NAMES))
@click.option(
    "--sources",
    callback=_names,
    metavar="NAME,...",
    help="Some data sets of Meta-Dataset, such as omniglot,dtd; for `queries` any sources.  [default: all that are "
    "there; queries: mini-imagenet]",
)
@options.specs
@click.option(
    "--tasks", type=click.IntRange(min=1), default=600, show_default=True, help="Tasks of each data set."
)
@options.adaptation
@click.option(
    "--weights",
    multiple=True,
    callback=_by_row,
    metavar="ROW=FILE",
    help="Adaptation weights of one row (a key of --json, such as plus or root-riemannian); may be given several "
    "times.  [default: those shipped for the row's model]",
)
@options.backbone
@options.image_size
@options.workers
@options.keep_features
@options.seed
@options.device
@options.out("runs")
@options.resume
@options.plots
@options.quiet
@options.as_json
def ablate(
    which: str,
    workers: int | None,
    keep: Path | None,
    out: Path,
    resume: bool,
    plots: bool,
    quiet: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare a model with its variants on the same tasks, beside the paper's rows.

    \b
    metric        six distances to the classes
    gmm           Gaussian mixtures in place of Simple and Transductive CNAPS
    transduction  which half of Transductive CNAPS helps: FEOT, COT, Transductive+
    refinement    none, unbounded, at least 2 and at most 4 steps; and the grid over both
    shots         class recall against the shots of the class
    queries       accuracy against the number of queries, on mini-ImageNet

    Rows that share features are scored on the same ones, embedded once; what an evaluation under --out has measured on
    the same tasks is taken from its record. Rows share their model's weights unless --weights gives them their own.

    \b
    Examples:
      cl-cnaps ablate metric --specs meta_dataset_specs --tasks 100
      cl-cnaps ablate transduction --sources omniglot,dtd --weights plus=runs/metatrain/plus/weights.safetensors
      cl-cnaps ablate queries
    """
    from cl_cnaps.results.ablation_run import AblationRun, run_ablation
    from cl_cnaps.torch_setup import set_up_torch

    set_up_torch()
    with task_bars(quiet or as_json) as watch:
        record = run_ablation(
            AblationRun(which=which, **asked), out, workers=workers, resume=resume, watch=watch, keep=keep
        )
    figures: list[Path] = []
    if plots:
        from cl_cnaps.results.plots.ablation import draw_ablation

        figures = draw_ablation(record)
    if as_json:
        for row in record.rows:
            click.echo(json.dumps({**row, "record": str(record.path)}))
    elif not quiet:
        _report(record, figures)


def _report(record: AblationRecord, figures: list[Path]) -> None:
    from cl_cnaps.results.ablation_notes import notes
    from cl_cnaps.results.ablation_tables import ablation_tables

    console = terminal()
    for table in ablation_tables(record):
        console.print(table)
        click.echo()
    for note in notes(record):
        console.print(note)
    click.echo()
    reused = sorted({name for row in record.rows for name in row["reused"]})
    for name in reused:
        click.echo(f"taken from: {name}")
    for figure in figures:
        if figure.suffix == ".png":
            click.echo(f"figure: {figure}")
    click.echo(f"record: {record.path}")
