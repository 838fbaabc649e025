"""`cl-cnaps pretrain`: train a backbone as an image classifier."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import TrainingDisplay, echo


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
@click.option(
    "--seed", type=click.IntRange(min=0), help="Instead of the recipe's: decides every random draw."
)
@click.option("--workers", type=click.IntRange(min=0), default=0, show_default=True,
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
    from cl_cnaps.commands.metatrain import EXIT_NOT_FINITE
    from cl_cnaps.data import Source, open_source, packed
    from cl_cnaps.data.source import total
    from cl_cnaps.models.backbones import load_backbone
    from cl_cnaps.models.loading import resolve_device
    from cl_cnaps.recipes import find_recipe
    from cl_cnaps.records.environment import code_version
    from cl_cnaps.torch_setup import set_up_torch
    from cl_cnaps.training.checkpoint import CHECKPOINT
    from cl_cnaps.training.class_pools import class_pool
    from cl_cnaps.training.image_batches import ImageBatches
    from cl_cnaps.training.metatrain import Ending
    from cl_cnaps.training.pretrain import BACKBONE, Pretraining
    from cl_cnaps.training.pretrain_recipe import read_pretrain_recipe

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise click.UsageError("pretrain runs in one process; only metatrain is shared out by torchrun")
    set_up_torch()
    recipe = read_pretrain_recipe(find_recipe(recipe_name))
    recipe = recipe if seed is None else replace(recipe, seed=seed)
    folder = out / "pretrain" / recipe.name
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
        said = {"ending": ending.value, "batches": progress.batches, "accuracy": progress.accuracy}
        echo(json.dumps({**said, "seconds": round(progress.seconds, 1), "folder": str(folder)}))
    elif not quiet:
        echo(f"{ending.value} ({progress.batches:,} batches, {progress.seconds / 60:.1f} minutes)")
        if progress.accuracy is not None:
            echo(f"accuracy: {100 * progress.accuracy:.2f} % of the validation images")
        echo(f"run:      {folder}")
        if ending is Ending.FINISHED:
            echo(f"backbone: {folder / BACKBONE}")
    if ending is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    raise SystemExit(EXIT_NOT_FINITE if ending is Ending.NOT_FINITE else 0)
