"""`cl-cnaps stream`: a model on a stream of tasks, with a table, charts and a record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.terminal import terminal
from cl_cnaps.commands.watching import StreamWatch

if TYPE_CHECKING:
    from cl_cnaps.results.stream_asked import StreamRun
    from cl_cnaps.results.streams import StreamRecord

CNAPS_MODELS = ("simple", "transductive", "cnaps", "protonet")
BASELINE_NAMES = (
    "naive", "joint", "replay", "ewc", "si", "rwalk", "vcl", "lwf", "slda", "ncm", "fecam",
    "simplecil", "lda", "ridge", "ranpac", "acil", "klda", "randumb", "fsa-film", "joint-probe", "pixel-ncm",
)  # fmt: skip
BENCHMARK_NAMES = (
    "split-mnist", "split-cifar10", "split-cifar100", "split-fashion-mnist", "split-omniglot", "split-mini-imagenet",
    "fscil-cifar100", "fscil-mini-imagenet", "fscil-cub", "permuted-mnist", "rotated-mnist", "mixed-domains",
    "mixed-offline",
)  # fmt: skip


@click.command()
@click.option(
    "--benchmark",
    default="split-mnist",
    show_default=True,
    help=f"{', '.join(BENCHMARK_NAMES)}; SOURCE:B50-Inc10 as class-incremental papers split it; "
    "domains:SOURCE,SOURCE with the same classes; mixed:SOURCE,SOURCE with a source a task; folder:PATH for your own "
    "images (a folder or zip with one folder per class), or the name of any source that `data list` shows.",
)
@click.option(
    "--model",
    type=click.Choice([*CNAPS_MODELS, *BASELINE_NAMES]),
    help="A CNAPS model (protonet: Euclidean distance on the same features) or a baseline.  [default: simple, or that "
    "of --variant]",
)
@options.encoding
@click.option(
    "--head",
    type=click.Choice(["single", "multi", "all"]),
    default="all",
    show_default=True,
    help="single: all classes seen so far compete. multi: only those of the query's task.",
)
@click.option(
    "--shots",
    type=options.CountOrAll(),
    help="Labelled images per class, or all.  [default: the benchmark's, 100]",
)
@click.option(
    "--base-shots", type=options.CountOrAll(), help="The same in the first task.  [default: as --shots]"
)
@click.option(
    "--queries",
    type=click.IntRange(min=1),
    help="Test images per class.  [default: 100, or as many as there are]",
)
@click.option(
    "--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Each with new images."
)
@click.option(
    "--classes-per-task",
    type=options.Sizes(),
    help="Split the classes into tasks of this size, the last with what is left; or the sizes of all tasks: 50,10,10.",
)
@click.option(
    "--base-classes", type=click.IntRange(min=0), default=0, help="Classes of the first task, if it differs."
)
@click.option(
    "--class-order",
    help="seed:1993 for the order of published tables, a file with one class a line, or names with commas; classes "
    "that are not named are left out.",
)
@click.option(
    "--repeat",
    type=click.IntRange(min=0),
    default=0,
    help="Earlier classes that come back in every later task, with new images.",
)
@click.option(
    "--lists",
    type=click.Path(path_type=Path),
    help="fscil-*: folder of the published image lists (session_2.txt, ...).",
)
@click.option(
    "--shuffle-classes",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Learn the classes in a random order.",
)
@options.adaptation
@options.backbone
@options.weights
@options.image_size
@options.variant
@click.option("--query-scope", type=click.Choice(["task", "stream"]), default="task", show_default=True,
              help="Transductive, single head: refine on the queries of one task, or of all tasks seen.")  # fmt: skip
@click.option("--baseline-on", type=click.Choice(["features", "network"]),
              help="Baselines: train on the backbone's features, or a small network from scratch.")  # fmt: skip
@click.option("--features", type=click.Choice(["frozen", "adapted"]),
              help="Baselines on features: those of the frozen backbone, or as Simple CNAPS adapts them to the first "
              "task.  [default: frozen]")  # fmt: skip
@options.keep_features
@options.seed
@options.device
@options.out("runs")
@options.resume
@options.plots
@options.download
@options.as_json
@options.quiet
def stream(
    encoding: str | None,
    keep: Path | None,
    out: Path,
    resume: bool,
    plots: bool,
    download: bool,
    as_json: bool,
    quiet: bool,
    **asked: Any,
) -> None:
    """Learn a stream of tasks and score every task after each step.

    \b
    cl-cnaps stream --encoding first --head single
    cl-cnaps stream --benchmark split-cifar10 --model transductive --encoding all
    cl-cnaps stream --benchmark folder:photos.zip --classes-per-task 3
    cl-cnaps stream --metric cosine
    cl-cnaps stream --variant feot
    cl-cnaps stream --model ewc --baseline-on network
    """
    from cl_cnaps.results.stream_run import prepare_stream
    from cl_cnaps.torch_setup import set_up_torch

    set_up_torch()
    run = run_of_options(encoding=encoding, **asked)
    wanted = options.ENCODING_NAMES if encoding == "all" else (encoding or "first",)
    records = []
    with StreamWatch(quiet or as_json) as watch:
        for name in wanted:
            chosen = replace(run, encoding=name)
            prepared = prepare_stream(chosen, download=download, keep=keep)
            records.append(prepared.run(out, resume=resume, progress=watch))
    files = _draw(records) if plots else []
    if as_json:
        for record in records:
            for summary in record.summaries:
                click.echo(json.dumps({**summary, "record": str(record.path)}))
    elif not quiet:
        _report(records, files)


def run_of_options(
    *,
    model: str | None,
    variant: str | None,
    encoding: str | None,
    head: str,
    class_order: str | None,
    **asked: Any,
) -> StreamRun:
    """What the options ask for; of `--encoding all`, with the first encoding."""
    from cl_cnaps.continual.class_order import read_class_order
    from cl_cnaps.models.variants import chosen_model
    from cl_cnaps.results.stream_asked import StreamRun

    name = chosen_model(model, variant)
    if encoding is not None and name not in CNAPS_MODELS:
        raise click.ClickException(
            f"--encoding is for CNAPS models; the baseline {name} has no task encoding"
        )
    return StreamRun(
        model=name,
        variant=variant,
        encoding="first" if encoding in (None, "all") else encoding,
        heads=("single", "multi") if head == "all" else (head,),  # type: ignore[arg-type]
        class_order=None if class_order is None else read_class_order(class_order),
        **asked,
    )


def _draw(records: list[StreamRecord]) -> list[Path]:
    from cl_cnaps.results.plots import draw_stream_figures, draw_streams

    files = [path for record in records for path in draw_stream_figures(record)]
    if len(records) > 1:
        first = records[0].path
        files += draw_streams(records, first.parent / f"{first.name}-and-{len(records) - 1}-more")
    return files


def _report(records: list[StreamRecord], files: list[Path]) -> None:
    from cl_cnaps.results.tables import stream_table

    console = terminal()
    summaries = [summary for record in records for summary in record.summaries]
    console.print(stream_table(summaries))
    first = summaries[0]
    click.echo(f"data:     {first['data_source']}")
    click.echo(f"weights:  {first['weights_source']}")
    pretraining = first["backbone_pretraining"]
    click.echo(f"backbone: {'not pre-trained' if pretraining == 'none' else f'pre-trained on {pretraining}'}")
    for record in records:
        click.echo(f"record:   {record.path}")
    for path in files:
        if path.suffix == ".png":
            click.echo(f"figure:   {path}")
