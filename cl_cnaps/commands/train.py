"""`cl-cnaps metatrain` and `pretrain`: learn to adapt from tasks, and train a backbone as a classifier."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import TrainingDisplay, echo, footer, terminal
from cl_cnaps.experiments.options import SETTINGS

if TYPE_CHECKING:
    from cl_cnaps.training.metatrain import Ending, MetaTraining
    from cl_cnaps.training.validation import Scores


EXIT_WORSE, EXIT_NOT_FINITE = 3, 4
DEFAULT_RECIPE = "training/small"
TRAINED_SETTINGS = tuple(name for name in SETTINGS if name != "modulation")
"""Static and swapped modulation need encodings of sources, which a training is about to make."""
REAL_RECIPE = "simple-efficientnet-lite0"
"""The recipe of the shipped weights."""


@click.command()
@click.argument("recipe_name", metavar="[RECIPE]", required=False)
@options.resume_training
@options.recipes_specs
@click.option("--start", metavar="NAME|FILE", help="Instead of the recipe's: weights to begin from.")
@click.option("--tasks", type=click.IntRange(1, 10**9), help="Instead of the recipe's: tasks in all.")
@options.recipes_options("backbone_weights", "seed", *TRAINED_SETTINGS, "refine_min", "refine_max")
@click.option("--workers", type=click.IntRange(0, 1000), default=0, show_default=True,
              help="Processes that load tasks ahead; the tasks stay the same.")  # fmt: skip
@options.device
@options.out
@options.as_json
@options.quiet
def metatrain(
    recipe_name: str | None, resume: bool, specs: Path | None, workers: int, device: str, out: Path, as_json: bool,
    quiet: bool, **changes: Any,
) -> None:  # fmt: skip
    """Train a model's adaptation on the tasks of RECIPE: a name that `recipes list` shows, or a TOML file.

    Without a recipe: a training of a few minutes on characters that the installation draws, which needs no data.

    Writes to OUT/metatrain/NAME: the checkpoint, the best weights, log.jsonl, curves for TensorBoard and, at the
    end, weights.safetensors, which --weights of other commands takes. See docs/training.md for recipes.

    \b
    Exit codes: 0 finished; 1 error; 2 wrong usage;
      3 stopped, since adapted features were worse than frozen ones at several validations in a row;
      4 stopped before an update by a loss or gradient that is NaN or infinite (see not_finite.json);
      130 stopped by Ctrl-C or SIGTERM: saved, --resume continues.

    \b
      cl-cnaps metatrain
      cl-cnaps metatrain simple-efficientnet-lite0 --specs specs
      cl-cnaps metatrain simple-resnet18-meta-dataset --specs specs --backbone-weights b.pt
      torchrun --nproc-per-node 4 --no-python cl-cnaps metatrain RECIPE.toml
    """
    from cl_cnaps.recipes import find_recipe
    from cl_cnaps.records.environment import code_version
    from cl_cnaps.torch_setup import set_up_torch
    from cl_cnaps.training.checkpoint import CHECKPOINT, export
    from cl_cnaps.training.metatrain import Ending, MetaTraining, build_model
    from cl_cnaps.training.ranks import Ranks
    from cl_cnaps.training.recipe import read_changed_recipe
    from cl_cnaps.training.tasks import open_data

    set_up_torch()
    recipe = read_changed_recipe(find_recipe(recipe_name or DEFAULT_RECIPE), changes)
    folder = out / "metatrain" / recipe.name
    options.writable(folder)
    options.resumable_from(folder / CHECKPOINT)
    with Ranks.join(device) as ranks, TrainingDisplay(quiet or as_json or not ranks.first) as watch:
        if recipe_name is None:
            watch.say(
                f"no recipe was given: {DEFAULT_RECIPE}, a few minutes on characters that the installation draws "
                "(source glyphs); tested on scripts and digits that are not trained on"
            )
        model, start = build_model(recipe)
        if ranks.local_rank:
            ranks.wait()  # the first process of each machine packs the images for all of them
        data = open_data(recipe, model.backbone.info.image_size, specs=specs, progress=watch.packing)
        if not ranks.local_rank:
            ranks.wait()
        training = MetaTraining(
            recipe,
            model.to(ranks.device),
            data,
            folder,
            ranks,
            watch,
            about={"code": code_version(), "start": dict(start)},
            resume=resume,
            workers=workers,
        )
        ending = training.run()
        if ranks.first:
            files, tested = [folder], {}
            if ending in (Ending.FINISHED, Ending.WORSE_THAN_FROZEN):
                tested = training.test()
                more = {"tasks_in_all": training.progress.tasks, "ending": ending.value}
                files.append(export(folder, {**more, **({"test": tested} if tested else {})}).path)
                files += _drawn(folder)
    if ranks.first:
        _report(training, ending, tested, files, as_json, quiet)
        if recipe_name is None and ending is Ending.FINISHED and not (as_json or quiet):
            footer([("use", f"cl-cnaps stream --weights {files[1]}")])
            footer([("next", f"cl-cnaps metatrain {REAL_RECIPE} --specs FOLDER")])
            echo(
                "          trains what is shipped, in hours: `cl-cnaps recipes show` prints on which data sets, "
                "`cl-cnaps data list` which of them are there; docs/training.md has the rest"
            )
    if ending is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    raise SystemExit(
        {Ending.WORSE_THAN_FROZEN: EXIT_WORSE, Ending.NOT_FINITE: EXIT_NOT_FINITE}.get(ending, 0)
    )


def _drawn(folder: Path) -> list[Path]:
    """Draw the curves of a run; the PNG file of what was drawn."""
    from cl_cnaps.report.training import draw_training

    return [path for path in draw_training(folder) if path.suffix == ".png"]


def _report(
    training: MetaTraining, ending: Ending, tested: Scores, files: list[Path], as_json: bool, quiet: bool
) -> None:
    progress, best = training.progress, training.progress.best
    if as_json:
        result = {
            "ending": ending.value,
            "tasks": progress.tasks,
            "seconds": round(progress.seconds, 1),
            "best": best,
            "frozen": progress.frozen,
            "test": tested,
            "files": [str(path) for path in files],
        }
        echo(json.dumps(result))
        return
    sentence = {
        "finished": "finished",
        "interrupted": "interrupted and saved",
        "worse than frozen features": f"stopped: adapted features were worse than frozen ones at "
        f"{progress.worse_in_a_row} validations in a row. The best weights before that are kept",
        "not finite": "stopped before the update: a number is NaN or infinite",
    }[ending.value]
    if quiet and ending.value in ("finished", "interrupted"):
        return
    echo(f"{sentence} ({progress.tasks:,} tasks, {progress.seconds / 60:.1f} minutes)", err=quiet)
    if quiet:
        return
    if best is not None:
        from cl_cnaps.report.table import terminal_table
        from cl_cnaps.report.training import accuracy_table

        echo()
        terminal().print(terminal_table(accuracy_table(best, tested, training.data.sources)))
        echo()
        if ending.value == "finished" and not training.own_beats_static:
            echo(_not_adapting(len(training.data.training.pools)))
    footer([({".safetensors": "weights", ".png": "figure"}.get(path.suffix, "run"), path) for path in files])


def _not_adapting(sources: int) -> str:
    if sources == 1:
        return (
            "note:     all tasks are of one source, so that one modulation for all of them (static) does as well as "
            "each task's own. Train on several sources that differ to see adaptation to the task"
        )
    return (
        "note:     the adaptation does not adapt: one modulation for all tasks (static) does as well as each "
        "task's own. Train longer, or on sources that differ more"
    )


@click.command()
@click.argument("recipe_name", metavar="RECIPE")
@options.resume_training
@options.recipes_specs
@click.option(
    "--backbone-weights",
    default="random",
    show_default=True,
    metavar="auto|random|FILE",
    help="Weights to begin from.",
)
@options.recipes_options("seed")
@click.option("--workers", type=click.IntRange(0, 1000), default=0, show_default=True,
              help="Processes that load batches ahead; the batches stay the same.")  # fmt: skip
@options.device
@options.out
@options.as_json
@options.quiet
def pretrain(
    recipe_name: str, resume: bool, specs: Path | None, backbone_weights: str, seed: int | None, workers: int,
    device: str, out: Path, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Train a backbone to tell the classes of one source apart, by the schedule of RECIPE.

    RECIPE is a name that `recipes list` shows, or a TOML file.

    Writes to OUT/pretrain/NAME: the checkpoint, log.jsonl, curves for TensorBoard and, at the end,
    backbone.safetensors, which --backbone-weights of other commands takes.

    \b
    Exit codes: 0 finished; 1 error; 2 wrong usage;
      4 stopped before an update by a loss or gradient that is NaN or infinite (see not_finite.json);
      130 stopped by Ctrl-C or SIGTERM: saved, --resume continues.

    \b
      cl-cnaps pretrain pretrain-resnet18-imagenet --specs specs
    """
    from cl_cnaps.data import Source, open_source, packed
    from cl_cnaps.data.source import total
    from cl_cnaps.models.backbones import load_backbone
    from cl_cnaps.models.loading import resolve_device
    from cl_cnaps.recipes import find_recipe
    from cl_cnaps.records.environment import code_version
    from cl_cnaps.torch_setup import set_up_torch
    from cl_cnaps.training.checkpoint import CHECKPOINT
    from cl_cnaps.training.class_pools import class_pool
    from cl_cnaps.training.metatrain import Ending
    from cl_cnaps.training.pretrain import BACKBONE, Pretraining
    from cl_cnaps.training.pretrain_data import ImageBatches, read_pretrain_recipe

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise click.UsageError("pretrain runs in one process; only metatrain is shared out by torchrun")
    set_up_torch()
    recipe = read_pretrain_recipe(find_recipe(recipe_name))
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    folder = out / "pretrain" / recipe.name
    options.writable(folder)
    options.resumable_from(folder / CHECKPOINT)
    backbone = load_backbone(
        recipe.backbone, weights=backbone_weights, image_size=recipe.image_size, seed=recipe.seed
    )
    size = backbone.info.image_size
    with TrainingDisplay(quiet or as_json, "batches") as watch:
        source = open_source(recipe.source.name)
        reader: Source = source
        if recipe.pack:
            images = total(source)
            reader = packed(source, size, progress=lambda n: watch.packing(source.name, n, images))
        assert recipe.source.train is not None
        pool = class_pool(recipe.source, recipe.source.train, source, reader, specs=specs, seed=recipe.seed)
        about = {"code": code_version(), "data": source.origin, "start": backbone.info.weights_source}
        training = Pretraining(
            recipe,
            backbone,
            ImageBatches(pool, recipe, size),
            folder,
            resolve_device(device),
            watch,
            about=about,
            resume=resume,
            workers=workers,
        )
        ending = training.run()
    progress = training.progress
    if as_json:
        result = {"ending": ending.value, "batches": progress.batches, "accuracy": progress.accuracy}
        echo(json.dumps({**result, "seconds": round(progress.seconds, 1), "folder": str(folder)}))
    elif not quiet:
        echo(f"{ending.value} ({progress.batches:,} batches, {progress.seconds / 60:.1f} minutes)")
        if progress.accuracy is not None:
            echo(f"accuracy: {100 * progress.accuracy:.2f} % of the validation images")
        made = [("backbone", folder / BACKBONE)] if ending is Ending.FINISHED else []
        footer([("run", folder), *made])
    if ending is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_NOT_FINITE if ending is Ending.NOT_FINITE else 0)
