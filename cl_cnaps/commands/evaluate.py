"""`cl-cnaps evaluate`: accuracy on many few-shot tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.task_bars import task_bars
from cl_cnaps.commands.terminal import terminal

if TYPE_CHECKING:
    from cl_cnaps.results.few_shot_run import FewShotRun


def _numbers(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Whole numbers with commas between; nothing if the option is not given."""
    if text is None:
        return ()
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is not whole numbers with commas between, such as 5,10") from None
    if min(numbers) < 1:
        raise click.BadParameter(f"{min(numbers)} is less than 1")
    return numbers


@click.command()
@click.argument("target")
@click.option(
    "--model",
    type=click.Choice(["simple", "transductive", "cnaps", "protonet"]),
    help="Simple CNAPS, Transductive CNAPS, CNAPS, or prototypes with Euclidean distance.  [default: simple, or that "
    "of --variant]",
)
@options.backbone
@options.weights
@options.adaptation
@options.image_size
@options.variant
@click.option(
    "--tasks", type=click.IntRange(min=1), default=600, show_default=True, help="Tasks of each data set."
)
@click.option(
    "--ways",
    callback=_numbers,
    metavar="N,N,...",
    help="Classes of a task.  [default: 5; mini, tiered: 5,10]",
)
@click.option(
    "--shots",
    callback=_numbers,
    metavar="N,N,...",
    help="Support images of each class.  [default: 5; mini, tiered: 1,5]",
)
@click.option("--queries", type=click.IntRange(min=1), help="Query images of each class.  [default: 10]")
@click.option(
    "--variable", is_flag=True, help="Ways and shots as Meta-Dataset draws them, new for every task."
)
@click.option(
    "--vary-queries",
    callback=_numbers,
    metavar="N,N,...",
    help="Repeat with each of these numbers of queries, on the same tasks; draws accuracy against them.",
)
@options.specs
@options.workers
@options.keep_features
@options.seed
@options.device
@options.out("runs")
@options.plots
@options.quiet
@options.as_json
def evaluate(
    workers: int | None, keep: Path | None, out: Path, plots: bool, quiet: bool, as_json: bool, **asked: Any
) -> None:
    """Measure accuracy on many few-shot tasks.

    TARGET is meta-dataset (all of its data sets that are there), mini-imagenet, tiered-imagenet, or any source:
    a name from `data list`, folder:PATH or records:PATH.

    \b
    Examples:
      cl-cnaps evaluate mini-imagenet --model transductive
      cl-cnaps evaluate meta-dataset --specs meta_dataset_specs --tasks 100
      cl-cnaps evaluate meta-dataset --specs meta_dataset_specs --variant cot
      cl-cnaps evaluate folder:photos.zip --ways 5 --shots 1,5
    """
    from cl_cnaps.results.few_shot_run import prepare_few_shot
    from cl_cnaps.torch_setup import set_up_torch

    set_up_torch()
    prepared = prepare_few_shot(run_of_options(**asked))
    with task_bars(quiet or as_json) as watch:
        record = prepared.run(
            out, workers=workers, watch=watch, each=_print_line if as_json else _say_nothing, keep=keep
        )
    figures: list[Path] = []
    if plots:
        from cl_cnaps.results.plots.few_shot import draw_few_shot_figures

        figures = draw_few_shot_figures(record)
    if as_json:
        if not quiet:
            for missing in prepared.target.missing:
                click.echo(f"missing: {missing.title}: {missing.reason}", err=True)
        return
    if not quiet:
        from cl_cnaps.results.few_shot_tables import few_shot_table

        terminal().print(few_shot_table(record.entries, record.averages, record.missing))
        click.echo()
        for figure in figures:
            click.echo(figure)
    click.echo(record.path)


def run_of_options(*, model: str | None, variant: str | None, **asked: Any) -> FewShotRun:
    """What the options ask for."""
    from cl_cnaps.models.variants import chosen_model
    from cl_cnaps.results.few_shot_run import FewShotRun

    return FewShotRun(model=chosen_model(model, variant), variant=variant, **asked)


def _print_line(entry: dict[str, Any]) -> None:
    click.echo(json.dumps(entry))


def _say_nothing(_entry: dict[str, Any]) -> None:
    pass
