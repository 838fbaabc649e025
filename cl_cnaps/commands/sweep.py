"""`cl-cnaps sweep`: all runs of a recipe, on this machine or on a Ray cluster."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import Display, echo, footer, terminal

if TYPE_CHECKING:
    from cl_cnaps.report.view import Headline
    from cl_cnaps.sweeps.engines import Engine
    from cl_cnaps.sweeps.recipe import Recipe
    from cl_cnaps.sweeps.sweep import Outcome, PlannedRun


def _pairs(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """NAME=VALUE as pairs."""
    for text in texts:
        if "=" not in text or text.startswith("="):
            raise click.BadParameter(f"{text!r} is not {option.metavar}, such as model=simple")
    return tuple((text.split("=", 1)[0].lstrip("-"), text.split("=", 1)[1]) for text in texts)


@click.command()
@click.argument("recipe_names", metavar="RECIPE...", nargs=-1, required=True)
@click.option("--smoke", is_flag=True, help="Run the recipe's smoke part: small enough for seconds on a CPU.")
@click.option(
    "--only",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="Only the runs with this option; repeated with the same name, with any of the values.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    callback=_pairs,
    metavar="NAME=VALUE",
    help="An option of the verb for all runs, instead of the recipe's: --set weights=FILE --set device=cuda. Repeated "
    "with the same name for options of the verb that may be, such as the weights of several rows of `ablate`.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Processes of this machine, or tasks on a Ray cluster that runs already.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    help="Runs at a time.  [default: local: one for each core, with a GPU 1; ray: what the cluster has room for]",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 1000),
    help="Threads of each run. Numbers are the same to the last digit for the same number of threads.  "
    "[default: local: cores / workers; ray: 1]",
)
@click.option(
    "--address", help="Ray: the cluster, such as 10.0.0.1:6379.  [default: the one on this machine]"
)
@click.option(
    "--gpus",
    type=options.Finite(min=0),
    help="Ray: GPUs that each run holds, such as 1 or 0.25.  [default: 0]",
)
@click.option("--dry-run", is_flag=True, help="List what would run and which records are there; run nothing.")
@options.keep_features
@options.out
@options.as_json
@options.quiet
def sweep(recipe_names: tuple[str, ...], **given: Any) -> None:
    """Run everything that each RECIPE lists and that has no finished record under --out yet.

    RECIPE is a name that `recipes list` shows, or a TOML file.

    A run that fails is tried once more, and the others go on. Records are those of the verb itself; beside them
    OUT/sweeps/NAME.json lists the runs with their records, and OUT/sweeps/NAME.failures.log the tracebacks.

    \b
    Exit codes: 0 all runs have their records; 1 some failed; 2 wrong usage;
      130 interrupted: the same command goes on from there.

    \b
      cl-cnaps sweep continual meta-dataset --dry-run
      cl-cnaps sweep continual --only benchmark=split-mnist --workers 2
      cl-cnaps sweep meta-dataset --set specs=meta_dataset_specs --workers 1 --keep-features features
      cl-cnaps sweep my-recipe.toml --engine ray --address 10.0.0.1:6379
    """
    if given["engine"] == "local" and (given["address"] is not None or given["gpus"] is not None):
        raise click.UsageError("--address and --gpus are for --engine ray")
    planned = [_planned(name, given) for name in recipe_names]  # an error of the last shows now, not one day
    given = {key: value for key, value in given.items() if key not in ("only", "changes")}
    complete = [_sweep(recipe, runs, **given) for recipe, runs in planned]
    if not all(complete):
        raise SystemExit(1)


def _planned(name: str, given: Mapping[str, Any]) -> tuple[Recipe, list[PlannedRun]]:
    """Read a recipe, and return the runs of it that are chosen."""
    from cl_cnaps.commands.sweep_runs import planned_runs
    from cl_cnaps.recipes import find_recipe
    from cl_cnaps.sweeps.recipe import read_sweep_recipe

    file = find_recipe(name)
    recipe, smoke = read_sweep_recipe(file), given["smoke"]
    if given["keep"] is not None and recipe.verb not in ("evaluate", "ablate"):
        raise click.UsageError(f"--keep-features is for evaluate and ablate, not for {recipe.name}")
    planned_runs(recipe, file.name, smoke=not smoke)
    chosen = {"only": given["only"], "changes": given["changes"], "elsewhere": given["engine"] == "ray"}
    return recipe, planned_runs(recipe, file.name, smoke=smoke, **chosen)


def _sweep(
    recipe: Recipe,
    runs: Sequence[PlannedRun],
    *,
    smoke: bool,
    engine: str,
    workers: int | None,
    threads: int | None,
    address: str | None,
    gpus: float | None,
    dry_run: bool,
    keep: Path | None,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> bool:
    """Make the runs of a recipe, and return whether all have their records."""
    from cl_cnaps.sweeps.sweep import append_failures, no_failures
    from cl_cnaps.sweeps.sweep import sweep as run_sweep

    name = f"{recipe.name}-smoke" if smoke else recipe.name
    if not dry_run:
        options.writable(out)
    failures = out / "sweeps" / f"{name}.failures.log"
    log = no_failures if dry_run else append_failures(failures)
    computing, threads = _engine(engine, workers, threads, address, gpus, len(runs))
    outcomes: list[Outcome] = []
    interrupted = False
    try:
        with computing, Display(quiet or as_json) as display:
            display.begin(name, len(runs))
            for outcome in run_sweep(
                runs, computing, out, threads=threads, log=log, look_only=dry_run, keep=keep
            ):
                outcomes.append(outcome)
                state = f"{outcome.run.words}: {outcome.status}" + (
                    f" ({outcome.reason})" if outcome.reason else ""
                )
                display.show(state, 1)
                display.line(f"{len(outcomes)} of {len(runs)}: {state}")
    except KeyboardInterrupt:
        interrupted = True
    outcomes.sort(key=lambda outcome: outcome.number)
    listing = None if dry_run else _write_listing(out, name, recipe, runs, outcomes)
    results = [(one, _headlines(one, recipe.paper.trained_on)) for one in outcomes]
    if as_json:
        for outcome, headlines in results:
            echo(json.dumps(_line(outcome, headlines)))
    elif not quiet:
        _report(name, recipe, results, runs, listing)
    failed = any(outcome.status == "failed" for outcome in outcomes)
    if failed and not dry_run:
        echo(f"tracebacks: {failures}", err=True)
    if interrupted:
        raise KeyboardInterrupt
    return not failed


def _engine(
    name: str, workers: int | None, threads: int | None, address: str | None, gpus: float | None, runs: int
) -> tuple[Engine, int]:
    """The engine, and the threads of each run."""
    from cl_cnaps.commands.sweep_runs import do

    if name == "ray":
        from cl_cnaps.sweeps.engines import RayEngine

        threads = threads or 1
        return RayEngine(do, address, workers, threads, gpus or 0.0), threads
    from cl_cnaps.sweeps.engines import LocalEngine
    from cl_cnaps.torch_setup import usable_cores

    if workers is None:
        import torch

        workers = 1 if torch.cuda.is_available() else max(1, usable_cores() // (threads or 1))
    workers = min(workers, max(1, runs))
    threads = threads or max(1, usable_cores() // workers)
    return LocalEngine(do, workers, threads), threads


def _headlines(outcome: Outcome, trained_on: str) -> list[Headline]:
    """The numbers of a run's records; those of several are named by their models."""
    from cl_cnaps.report.view import view_of

    if outcome.record is None:
        return []
    if not outcome.others:
        return view_of(outcome.record).headlines(trained_on)
    return [
        replace(line, of=f"{view.name}, {line.of}")
        for view in map(view_of, (outcome.record, *outcome.others))
        for line in view.headlines(trained_on)
    ]


def _line(outcome: Outcome, headlines: Sequence[Headline]) -> dict[str, Any]:
    return {
        "run": outcome.run.words,
        "command": shlex.join(["cl-cnaps", outcome.run.verb, *outcome.run.arguments]),
        "status": outcome.status,
        "record": None if outcome.path is None else outcome.path.as_posix(),
        "others": [record.path.as_posix() for record in outcome.others],
        "headlines": [asdict(headline) for headline in headlines],
        "seconds": outcome.seconds,
        "attempts": outcome.attempts,
        "reason": outcome.reason,
    }


def _write_listing(
    out: Path, name: str, recipe: Recipe, runs: Sequence[PlannedRun], outcomes: Sequence[Outcome]
) -> Path:
    """OUT/sweeps/NAME.json: which record belongs to which run of the recipe."""
    from cl_cnaps.data.atomic import write_text
    from cl_cnaps.records.strict_json import dumps

    ended = {outcome.number: outcome for outcome in outcomes}
    listed = []
    for number, run in enumerate(runs):
        outcome = ended.get(number)
        path = outcome.path if outcome else None
        listed.append(
            {
                "command": shlex.join(["cl-cnaps", run.verb, *run.arguments]),
                "status": outcome.status if outcome else "not run",
                "record": None if path is None else path.relative_to(out),
                "others": []
                if outcome is None
                else [record.path.relative_to(out) for record in outcome.others],
            }
        )
    content = {"recipe": recipe.name, "paper": list(recipe.paper.labels), "runs": listed}
    path = out / "sweeps" / f"{name}.json"
    write_text(path, f"{dumps(content, 'listing', indent=2)}\n")
    return path


def _report(
    name: str,
    recipe: Recipe,
    results: Sequence[tuple[Outcome, Sequence[Headline]]],
    runs: Sequence[PlannedRun],
    listing: Path | None,
) -> None:
    from cl_cnaps.report.labels import count
    from cl_cnaps.report.table import terminal_table
    from cl_cnaps.sweeps.sweep import sweep_table, tally

    if results:
        title = " · ".join(filter(None, (name, recipe.verb, ", ".join(recipe.paper.labels))))
        terminal().print(terminal_table(sweep_table(title, results)))
        echo()
    echo(f"{count(len(runs), 'run')}: {tally([outcome for outcome, _ in results]) or 'none ended'}")
    if listing is not None:
        footer([("listing", listing)])
