"""`cl-cnaps weights`: what weight files there are, what they say of themselves, and import of released ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import echo, footer

if TYPE_CHECKING:
    from cl_cnaps.models.weights import WeightFile


@click.group()
def weights() -> None:
    """List, show and import model weights (safetensors files with metadata)."""


@weights.command("list")
@options.as_json
def list_(as_json: bool) -> None:
    """Show the weights that have a name: shipped with the package, then your own."""
    from cl_cnaps.models.weights import list_weights
    from cl_cnaps.paths import weights_root

    files = list_weights()
    if as_json:
        for file in files:
            echo(json.dumps(_facts(file)))
        return
    if not files:
        echo("No weights yet. `cl-cnaps weights import CHECKPOINT.pt` takes in a released checkpoint.")
    width = max((len(file.name) for file in files), default=0)
    for file in files:
        echo(f"{file.name:{width}}  {file.config.model:13} {file.config.backbone:20} {_origin(file)}")
    echo(f"\nYour own weights are looked for in {weights_root()}")


@weights.command()
@click.argument("name")
@options.as_json
def show(name: str, as_json: bool) -> None:
    """Show what a weight file or a backbone is.

    NAME is a name from `weights list`, the path of a weight file, or a backbone, such as timm:convnext_atto: its input,
    its features and the layers that FiLM can modulate. No weights are loaded or downloaded for that.
    """
    from cl_cnaps.models.backbones import describe_backbone, is_backbone
    from cl_cnaps.models.weights import describe, find_weights

    facts = describe_backbone(name) if is_backbone(name) else _facts(describe(find_weights(name)))
    if as_json:
        echo(json.dumps(facts))
        return
    _show(facts)


@weights.command("import")
@click.argument("checkpoint", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--model",
    type=click.Choice(["simple", "transductive", "cnaps"]),
    help="Refuse a checkpoint of any other model. By default any; the file shows which it is.",
)
@click.option("--name", help="Name to keep it under; by default the checkpoint's file name.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write this file instead of keeping it by name.",
)
@click.option(
    "--batch-statistics",
    is_flag=True,
    help="Let the set encoder normalise by the images at hand, as the authors' few-shot scripts do.",
)
def import_(checkpoint: Path, model: Any, name: str | None, out: Path | None, batch_statistics: bool) -> None:
    """Take in a released checkpoint (.pt): resnet18; Simple, Transductive or original CNAPS with `film`.

    The file is read as plain tensors; a key that is unknown or missing, or a wrong shape, is refused by name.

    \b
    Example: cl-cnaps weights import best_simple_cnaps.pt --name simple-authors
             cl-cnaps stream --model simple --weights simple-authors
    """
    from cl_cnaps.models.released import import_checkpoint
    from cl_cnaps.models.weights import save_weights
    from cl_cnaps.paths import weights_root

    if out is not None and name is not None:
        raise click.UsageError(
            "--name keeps the weights by name, --out writes them to a file: give one of them"
        )
    if out is not None and out.suffix != ".safetensors":
        raise click.BadParameter("the file name must end in .safetensors", param_hint="--out")
    if name is not None and not re.fullmatch(r"\w[\w.-]*", name):
        raise click.BadParameter(f"{name!r} is not letters, digits, '.', '-' and '_'", param_hint="--name")
    path = out or weights_root() / f"{(name or checkpoint.stem).removesuffix('.safetensors')}.safetensors"
    imported = import_checkpoint(checkpoint, model, batch_statistics=batch_statistics)
    file = save_weights(path, imported, {"imported_from": checkpoint.name})
    parameters = sum(p.numel() for p in imported.parameters())
    echo(f"{file.config.model} on {file.config.backbone}, {parameters:,} parameters, digest {file.digest}")
    footer([("weights", path)])


def _facts(file: WeightFile) -> dict[str, Any]:
    from dataclasses import asdict

    training = dict(file.training)
    if encodings := training.get("encodings"):  # numbers that nobody reads
        training["encodings"] = f"mean task encodings of {', '.join(sorted(encodings))}"
    return {
        "name": file.name,
        "file": str(file.path),
        "model": file.config.model,
        "backbone": file.config.backbone,
        "backbone_included": file.has_backbone,
        "backbone_digest": file.backbone_digest,
        "backbone_weights": file.backbone_source,
        **({"features_from": " ".join(file.features)} if file.features else {}),
        "backbone_pretraining": file.backbone_pretraining,
        "digest": file.digest,
        "training": training,
        "config": asdict(file.config),
    }


def _show(facts: Mapping[str, Any], indent: str = "") -> None:
    """A line for each fact; what belongs to one is indented below it."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            echo(f"{indent}{key}:")
            _show(value, f"{indent}  ")
        else:
            echo(f"{indent}{key}: {value}")


def _origin(file: WeightFile) -> str:
    """Return where weights come from and how well they did there, in a line."""
    training = file.training
    if "imported_from" in training:
        return f"imported from {training['imported_from']}"
    how = f"trained on {training['tasks']:,} tasks" if "tasks" in training else "trained"
    validation = training.get("validation", {})
    means = [
        f"{kind} {100 * fmean(scores.values()):.1f}"
        for kind in ("own", "static", "swapped", "frozen")
        if (scores := (validation or {}).get(kind))
    ]
    return f"{how}, validation {', '.join(means)}" if means else how
