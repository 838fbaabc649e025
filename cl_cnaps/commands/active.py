"""`cl-cnaps active`: how accuracy grows with labels that the model asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.terminal import terminal
from cl_cnaps.commands.watching import ActiveWatch

if TYPE_CHECKING:
    from cl_cnaps.results.active import ActiveRecord
    from cl_cnaps.results.active_run import ActiveRun

STRATEGY_NAMES = ("random", "entropy", "variation-ratio")


def _names(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Names with commas between, from an option that may be repeated; None if it is not given."""
    return tuple(name.strip() for text in given for name in text.split(",")) or None


@click.command()
@click.option(
    "--source",
    default="cifar10",
    show_default=True,
    help="cifar10, omniglot (a task per alphabet of the evaluation set), any source that `data list` shows, or "
    "folder:PATH for your own images (a folder or zip with one folder per class).",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    callback=_names,
    metavar="NAME,NAME,...",
    help=f"{', '.join(STRATEGY_NAMES)}, or several with commas.  [default: all three]",
)
@click.option(
    "--model",
    type=click.Choice(["simple", "transductive", "cnaps", "protonet"]),
    help="Simple CNAPS, Transductive CNAPS, CNAPS, or prototypes with Euclidean distance.  [default: simple, or that "
    "of --variant]",
)
@click.option(
    "--adaptation",
    type=click.Choice(["film", "none", "both"]),
    help="film: features adapted anew after each round; none: frozen features (the paper's FFE).  [default: both if "
    "there are weights for film, else none]",
)
@click.option(
    "--alphabet",
    "alphabets",
    multiple=True,
    callback=_names,
    metavar="all|NAME,NAME,...",
    help="Omniglot: which alphabets.  [default: Angelic and Atemayar_Qelisayer; with --paper all]",
)
@click.option(
    "--paper",
    is_flag=True,
    help="The paper's protocol in full in place of a short one; hours, with adaptation.",
)
@click.option(
    "--initial", type=click.IntRange(min=1), help="Labelled images per class at the start.  [default: 5]"
)
@click.option(
    "--per-round",
    type=click.IntRange(min=1),
    help="Labels asked for at a time.  [default: 25; omniglot: 1; other sources: one for every two classes]",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="How often labels are asked for; a curve has one point more.  [default: cifar10 5, else 9; --paper: 29]",
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help="Each with new images.  [default: 4; --paper: cifar10 10, omniglot 30]",
)
@click.option(
    "--pool",
    type=click.IntRange(min=1),
    help="Unlabelled images per class.  [default: 50, or as many as there are; omniglot: 10; cifar10 --paper: all]",
)
@click.option(
    "--test",
    type=click.IntRange(min=1),
    help="Test images per class.  [default: 50, or as many as there are; omniglot: 5; cifar10 --paper: all]",
)
@click.option(
    "--query-set",
    type=click.IntRange(min=1),
    help="Most images that are refined together (transductive).  [default: 1000]",
)
@click.option(
    "--reach",
    type=click.FloatRange(0, 1, min_open=True),
    help="Accuracy, as a fraction of 1, to count the labels for.  [default: what random ends with]",
)
@options.backbone
@options.weights
@options.image_size
@options.variant
@options.workers
@options.seed
@options.device
@options.out("runs")
@options.resume
@options.plots
@options.download
@options.as_json
@options.quiet
def active(
    reach: float | None,
    out: Path,
    resume: bool,
    plots: bool,
    download: bool,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Let a model choose the images it wants labelled, and measure it after each round.

    All strategies of a run start from the same labels, pool and test set.

    \b
    cl-cnaps active
    cl-cnaps active --source omniglot --alphabet all --model transductive
    cl-cnaps active --source folder:photos.zip --strategy random,entropy --per-round 5
    cl-cnaps active --source omniglot --paper --adaptation both --weights my-weights
    """
    from cl_cnaps.results.active_run import run_and_record
    from cl_cnaps.torch_setup import set_up_torch

    set_up_torch()
    run = run_of_options(reach=reach, **asked)
    with ActiveWatch(quiet or as_json) as watch:
        records = run_and_record(run, out, resume=resume, progress=watch, download=download)
    files = _draw(records) if plots else []
    if as_json:
        for record in records:
            for entry in record.entries_to_reach(reach):
                click.echo(json.dumps({**entry, "record": str(record.path)}))
    elif not quiet:
        _report(records, reach, files)


def run_of_options(*, strategies: tuple[str, ...] | None, **asked: Any) -> ActiveRun:
    """What the options ask for."""
    from cl_cnaps.results.active_run import ActiveRun

    chosen = STRATEGY_NAMES if strategies in (None, ("all",)) else strategies
    return ActiveRun(strategies=chosen, **asked)


def _draw(records: list[ActiveRecord]) -> list[Path]:
    from cl_cnaps.results.plots.active import draw_active_figures

    return draw_active_figures(records)


def _report(records: list[ActiveRecord], reach: float | None, files: list[Path]) -> None:
    from cl_cnaps.results.active_tables import active_notes, active_table

    entries = [entry for record in records for entry in record.entries_to_reach(reach)]
    terminal().print(active_table(entries))
    for note in active_notes(entries):
        click.echo(note)
    click.echo(f"data:     {entries[0]['data_source']}")
    for words in dict.fromkeys(entry["weights_source"] for entry in entries):
        click.echo(f"weights:  {words}")
    click.echo(f"backbone: pre-trained: {entries[0]['backbone_pretraining']}")
    for record in records:
        click.echo(f"record:   {record.path}")
    for path in files:
        if path.suffix == ".png":
            click.echo(f"figure:   {path}")
