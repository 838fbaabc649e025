"""`cl-cnaps learn`: a classifier for a person's own images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import echo
from cl_cnaps.names import COVARIANCES


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The classifier's file, ending in .safetensors.",
)
@click.option(
    "--add",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A classifier to go on from: new classes are added, images of known ones merged. Its images are not needed.",
)
@click.option(
    "--model",
    type=click.Choice(["simple", "transductive", "cnaps", "protonet"]),
    help="[default: simple]",
)
@click.option(
    "--covariance",
    type=click.Choice(COVARIANCES),
    help="The shared part of a class's covariance is of all classes learned, or of those learned with it.  "
    "[default: seen]",
)
@click.option(
    "--unlabelled",
    type=click.Path(path_type=Path),
    help="Images of the kind to be predicted, which the transductive model adapts to as well.",
)
@options.model_options("weights", "backbone", "backbone_weights", "adaptation", "image_size")
@options.seed
@options.device
@options.quiet
@options.as_json
def learn(
    folder: Path,
    out: Path,
    add: Path | None,
    unlabelled: Path | None,
    device: str,
    quiet: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Learn the classes of FOLDER, or zip, which has one folder of images per class, and write a classifier."""
    from cl_cnaps.classifier import FewShotClassifier

    if out.suffix != ".safetensors":
        raise click.BadParameter(f"{out} does not end in .safetensors", param_hint="--out")
    if add is not None:
        usual = {"backbone_weights": "auto", "seed": 0}
        given = [name for name, value in chosen.items() if value is not None and value != usual.get(name)]
        others = [name for name in given if name != "weights"]
        if others:
            raise click.UsageError(
                f"--{others[0].replace('_', '-')} was chosen when {add} was learned: leave it out"
            )
        classifier = FewShotClassifier.load(add, weights=chosen["weights"], device=device)
        classifier.partial_fit(folder, unlabelled=unlabelled)
    else:
        parameters = {name: value for name, value in chosen.items() if value is not None}
        classifier = FewShotClassifier(**parameters, device=device).fit(folder, unlabelled=unlabelled)
    classifier.save(out)
    counts = {str(label): count for label, count in sorted(classifier.counts_.items())}
    if as_json:
        echo(json.dumps({"classes": counts, "out": str(out)}))
    elif not quiet:
        width = max(map(len, counts))
        for label, count in counts.items():
            echo(f"{label:{width}}  {count:,} image{'s' * (count != 1)}")
        echo(f"\nWritten: {out}\nUse it: cl-cnaps predict {out} FOLDER")
