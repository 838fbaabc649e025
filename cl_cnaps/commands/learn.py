"""`cl-cnaps learn` and `predict`: a classifier for your own images, and its answers for new ones."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands import options
from cl_cnaps.commands.display import echo, footer
from cl_cnaps.errors import BadInputError, ClCnapsError, escaped
from cl_cnaps.names import COVARIANCES

if TYPE_CHECKING:
    from cl_cnaps.image_inputs import Picture
    from cl_cnaps.predictions import Prediction


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
    options.writable(out.parent)
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
        weights = chosen["weights"]
        with_weights = f" --weights {weights}" if weights and Path(weights).is_file() else ""
        echo(f"\nUse it with: cl-cnaps predict {out} FOLDER{with_weights}")
        footer([("written", out)])


_SHOWN = 40  # rows of the table


@click.command()
@click.argument("classifier", type=click.Path(path_type=Path))
@click.argument("images", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--unknown",
    type=options.Finite(0, 1, min_open=True, max_open=True),
    help='Answer "unknown" where an image is further from every class than this part of the training images was when '
    "left out, such as 0.95.",
)
@click.option(
    "--move-into",
    type=click.Path(file_okay=False, path_type=Path),
    help="Move each file into a folder of its answer below this one.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs/predict"),
    show_default=True,
    help="Folder for predictions.csv and contact-sheet.png.",
)
@options.model_options("weights")
@options.device
@options.quiet
@options.as_json
@click.option("--csv", "as_csv", is_flag=True, help="Print a table of comma-separated values, nothing else.")
def predict(
    classifier: Path,
    images: tuple[Path, ...],
    unknown: float | None,
    move_into: Path | None,
    out: Path,
    weights: str | None,
    device: str,
    quiet: bool,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Predict IMAGES, a folder, a zip or files, with a CLASSIFIER that `learn` wrote.

    A table shows the answers, a contact sheet the images with them, the least certain first. Files that cannot be read
    are named at the end, with exit code 1; the others are answered.
    """
    from cl_cnaps.classifier import FewShotClassifier
    from cl_cnaps.data.atomic import make_folder, write_text
    from cl_cnaps.image_inputs import pictures
    from cl_cnaps.predictions import contact_sheet, least_certain_first

    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")
    options.writable(out)
    inputs: Any = images[0] if len(images) == 1 else list(images)
    learned = FewShotClassifier.load(classifier, weights=weights, device=device)
    found, unreadable = _readable(pictures(inputs))
    answers = learned.predictions(found, unknown=unknown)
    moves = [] if move_into is None else _moves(inputs, answers, move_into)
    table = _as_csv(answers, learned.classes_.tolist())
    make_folder(out)
    write_text(out / "predictions.csv", table)
    written = [out / "predictions.csv", contact_sheet(out / "contact-sheet.png", found, answers)]
    for start, end in moves:
        make_folder(end.parent)
        shutil.move(start, end)
    if as_json:
        for answer in answers:
            echo(json.dumps({"image": answer.name, **_facts(answer)}))
    elif as_csv:
        click.echo(escaped(table) if sys.stdout.isatty() else table, nl=False, color=True)
    elif not quiet:
        _show(answers, least_certain_first(answers))
        echo()
        if move_into is not None:
            echo(f"Moved: {len(moves):,} files into {move_into}")
        footer([("answers", written[0]), ("images", written[1])])
    if unreadable:
        more = f", and {len(unreadable) - 1:,} more" if len(unreadable) > 1 else ""
        raise BadInputError(f"{unreadable[0]}{more}: no answer for what cannot be read")


def _readable(found: Sequence[Picture]) -> tuple[list[Picture], list[str]]:
    """Return the images that can be read, and what is wrong with each of the others; one at least must be."""
    good, bad = [], []
    for picture in found:
        try:
            picture.read()
        except ClCnapsError as error:
            bad.append(str(error))
        else:
            good.append(picture)
    if bad and not good:
        raise BadInputError(bad[0])
    return good, bad


def _facts(answer: Prediction) -> dict[str, Any]:
    return {
        "label": answer.label,
        "probability": answer.probability,
        "probabilities": {str(label): p for label, p in answer.probabilities.items()},
    }


def _show(answers: Sequence[Prediction], order: Sequence[int]) -> None:
    shown = [answers[i] for i in order[:_SHOWN]]
    wide = max((len(answer.name) for answer in shown), default=0)
    for answer in shown:
        echo(f"{answer.name:{wide}}  {answer}")
    if len(answers) > len(shown):
        echo(f"... and {len(answers) - len(shown):,} more certain ones")


def _as_csv(answers: Sequence[Prediction], classes: Sequence[Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "label", "probability", *classes])
    for answer in answers:
        writer.writerow([answer.name, answer.label, answer.probability, *answer.probabilities.values()])
    return text.getvalue().encode(errors="backslashreplace").decode()  # names of files are not all UTF-8


def _moves(inputs: Any, answers: Sequence[Prediction], root: Path) -> list[tuple[Path, Path]]:
    """Return source and target of each file; all are checked before the first one moves."""
    from cl_cnaps.paths import below

    if isinstance(inputs, Path) and inputs.suffix.lower() == ".zip":
        raise BadInputError(
            f"{inputs} is a zip, whose images cannot be moved: unpack it, or leave --move-into out"
        )
    folder = inputs if isinstance(inputs, Path) and inputs.is_dir() else Path()
    moves = [(folder / a.name, below(root, str(a.label)) / Path(a.name).name) for a in answers]
    taken: set[Path] = set()
    for start, end in moves:
        if end.exists() or end in taken:
            raise BadInputError(f"{start} would become {end}, which is there already: nothing was moved")
        taken.add(end)
    return moves
