"""`cl-cnaps evaluate`: accuracy on many few-shot tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.task_bars import RunningMean, task_bars

if TYPE_CHECKING:
    from cl_cnaps.evaluation.targets import Target
    from cl_cnaps.evaluation.workers import Workers
    from cl_cnaps.gaussian import Unbounded
    from cl_cnaps.models.loading import LoadedModel
    from cl_cnaps.results.few_shot import Result


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
@options.seed
@options.device
@options.out("runs")
@click.option("--plots/--no-plots", default=True, show_default=True, help="Draw the charts.")
@options.quiet
@options.as_json
def evaluate(
    target: str,
    model: str | None,
    backbone: str | None,
    backbone_weights: str,
    weights: str | None,
    adaptation: str | None,
    image_size: int | None,
    tasks: int,
    ways: tuple[int, ...],
    shots: tuple[int, ...],
    queries: int | None,
    variable: bool,
    vary_queries: tuple[int, ...],
    metric: str | None,
    variant: str | None,
    refine_min: int | None,
    refine_max: int | Unbounded | None,
    specs: Path | None,
    workers: int | None,
    seed: int,
    device: str,
    out: Path,
    plots: bool,
    quiet: bool,
    as_json: bool,
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
    from cl_cnaps.models.variants import chosen_model, refines

    name = chosen_model(model, variant)
    if not refines(name, variant) and (refine_min is not None or refine_max is not None):
        raise click.UsageError(
            f"--refine-min and --refine-max are for models that refine, not for {variant or name}"
        )
    from cl_cnaps.evaluation.targets import plan, refinement_steps, task_shapes
    from cl_cnaps.evaluation.workers import Workers, usable_cores
    from cl_cnaps.models.config import refinement_bounds
    from cl_cnaps.models.loading import load_model
    from cl_cnaps.results.few_shot import write_few_shot_record

    shapes = task_shapes(
        target, ways=ways, shots=shots, queries=queries, variable=variable, vary_queries=vary_queries
    )
    planned = plan(target, shapes, specs=specs)
    least, most = refinement_bounds(refine_min, refine_max, refinement_steps(target))
    loaded = load_model(
        name,  # type: ignore[arg-type]
        backbone=backbone,
        backbone_weights=backbone_weights,
        weights=weights,
        adaptation=adaptation,  # type: ignore[arg-type]
        image_size=image_size,
        seed=seed,
        device=device,
        metric=metric,
        variant=variant,
        refine_min=least,
        refine_max=most,
    )
    if workers is None:
        workers = usable_cores() if loaded.model.device.type == "cpu" else 0
    with Workers(loaded.model, workers) as pool:
        results = _run(pool, planned, loaded, tasks, seed, quiet=quiet, as_json=as_json)
    record = write_few_shot_record(
        out,
        planned,
        results,
        loaded,
        tasks=tasks,
        seed=seed,
        environment_extra={"device": str(loaded.model.device), "workers": workers},
    )
    figures: list[Path] = []
    if plots:
        from cl_cnaps.results.plots.few_shot import draw_few_shot_figures

        figures = draw_few_shot_figures(record)
    if as_json:
        if not quiet:
            for missing in planned.missing:
                click.echo(f"missing: {missing.title}: {missing.reason}", err=True)
        return
    if not quiet:
        from rich.console import Console

        from cl_cnaps.results.few_shot_tables import few_shot_table

        Console().print(few_shot_table(record.entries, record.averages, record.missing), highlight=False)
        click.echo()
        for figure in figures:
            click.echo(figure)
    click.echo(record.path)


def _run(
    pool: Workers,
    planned: Target,
    loaded: LoadedModel,
    tasks: int,
    seed: int,
    *,
    quiet: bool,
    as_json: bool,
) -> list[Result]:
    """Every data set and shape in turn; with `as_json`, each is printed when it is done."""
    from cl_cnaps.data.source import total
    from cl_cnaps.evaluation.run import run_tasks, with_packed_images
    from cl_cnaps.results.few_shot import Result, few_shot_entry

    size = loaded.model.backbone.info.image_size
    results = []
    with task_bars(quiet or as_json) as bar:
        for one in planned.sets:
            with bar(f"{one.title}: reading images", total(one.tasks_of.images)) as advance:
                images = with_packed_images(one.tasks_of, size, advance)
            with bar(one.title, tasks * len(planned.shapes)) as advance:
                report = RunningMean(advance)
                for outcome in run_tasks(
                    pool, one.tasks_of, images, planned.shapes, tasks=tasks, seed=seed, progress=report
                ):
                    report.start_again()
                    results.append(Result(one, outcome))
                    if as_json:
                        click.echo(json.dumps(few_shot_entry(planned.name, results[-1], loaded, seed)))
    return results
