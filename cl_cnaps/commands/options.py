"""Options that several verbs share, so that they read and behave the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from cl_cnaps.models.variants import VARIANTS

ENCODING_NAMES = ("moving", "first", "averaging")
METRIC_NAMES = ("mahalanobis", "root-riemannian", "euclidean", "l1", "cosine", "dot")

F = TypeVar("F", bound=Callable[..., Any])


def one_of(
    names: Sequence[str], registered: Callable[[], Iterable[str]]
) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A check that a name is one of `names`, which are known without loading PyTorch, or was registered by a person."""

    def check(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
        if given is None or given in names or given in registered():
            return given
        said = ", ".join(map(repr, dict.fromkeys((*names, *registered()))))
        raise click.BadParameter(f"{given!r} is not one of {said}.", context, option)

    return check


class CountOrAll(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A number of images, or `all`."""

    name = "N|all"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        if value == "all" or (isinstance(value, int) and value >= 1):
            return value
        if str(value).isdecimal() and int(value) >= 1:
            return int(value)
        return self.fail(f"{value!r} is neither a number of at least 1 nor all.", param, ctx)


class Sizes(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """One size, or several with commas."""

    name = "N|N,N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it: a number, or a tuple of numbers."""
        if isinstance(value, int | tuple):
            return value
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
            self.fail(f"{value!r} is not a number of at least 1, nor several with commas.", param, ctx)
        sizes = tuple(int(part) for part in parts)
        return sizes[0] if len(sizes) == 1 else sizes


def encoding(function: F) -> F:
    """`--encoding`."""
    return click.option(
        "--encoding",
        metavar=f"[{'|'.join(ENCODING_NAMES)}|all]",
        callback=one_of((*ENCODING_NAMES, "all"), _encodings),
        help="Which task encoding adapts the features: the latest task's, the first's for ever, or their running mean. "
        "Baselines have none.  [default: first]",
    )(function)


def seed(function: F) -> F:
    """`--seed`."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Decides every random draw."
    )(function)


def device(function: F) -> F:
    """`--device`."""
    return click.option(
        "--device",
        default="auto",
        show_default=True,
        help="auto, cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.",
    )(function)


def out(default: str) -> Callable[[F], F]:
    """`--out` with the verb's own default folder."""

    def decorate(function: F) -> F:
        return click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path(default),
            show_default=True,
            help="Folder that the run's record is written under.",
        )(function)

    return decorate


def quiet(function: F) -> F:
    """`--quiet`."""
    return click.option("--quiet", "-q", is_flag=True, help="No progress and no table; errors still show.")(
        function
    )


def resume(function: F) -> F:
    """`--resume` of verbs that make a record."""
    return click.option(
        "--resume",
        is_flag=True,
        help="Take up a killed run of the same configuration, or the record of a finished one.",
    )(function)


def resume_training(function: F) -> F:
    """`--resume` of verbs that train."""
    return click.option(
        "--resume", is_flag=True, help="Go on from the last checkpoint of the same recipe under --out."
    )(function)


def plots(function: F) -> F:
    """`--plots/--no-plots`."""
    return click.option("--plots/--no-plots", default=True, show_default=True, help="Draw the charts.")(
        function
    )


def download(function: F) -> F:
    """`--download/--no-download`."""
    return click.option(
        "--download/--no-download",
        default=True,
        show_default=True,
        help="Fetch missing data through torchvision.",
    )(function)


def as_json(function: F) -> F:
    """`--json`."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON object per line on standard output, nothing else there.",
    )(function)


def backbone(function: F) -> F:
    """`--backbone` and `--backbone-weights`."""
    function = click.option(
        "--backbone-weights",
        default="auto",
        show_default=True,
        metavar="auto|download|random|FILE",
        help="The backbone's own weights (auto), timm's fetched now (download), random ones, or a state dict.",
    )(function)
    return click.option(
        "--backbone",
        help="efficientnet-lite0, resnet18 (the paper's) or timm:NAME.  [default: efficientnet-lite0]",
    )(function)


def weights(function: F) -> F:
    """`--weights`."""
    return click.option(
        "--weights",
        metavar="NAME|FILE|none",
        help="Adaptation weights (see `weights list`).  [default: those shipped for the model, if any]",
    )(function)


def adaptation(function: F) -> F:
    """`--adaptation`."""
    return click.option(
        "--adaptation",
        type=click.Choice(["film", "none"]),
        help="film: features adapted to each task; none: frozen features.  [default: film if there are weights for "
        "it, else none]",
    )(function)


def image_size(function: F) -> F:
    """`--image-size`."""
    return click.option(
        "--image-size", type=click.IntRange(min=16), help="Input side in pixels.  [default: the backbone's]"
    )(function)


def variant(function: F) -> F:
    """`--metric`, `--variant`, `--refine-min` and `--refine-max`: what the paper's ablations change."""
    return _variant(
        function,
        metric="that of the weights, else mahalanobis",
        variant="that of the weights, else plain",
        refine_min="2",
        refine_max="4; evaluate mini-, tiered-imagenet: 10",
    )


def recipes_variant(function: F) -> F:
    """The same four, of a model that is to be trained: what is not given is as the recipe says."""
    said = "the recipe's"
    return _variant(function, metric=said, variant=said, refine_min=said, refine_max=said)


def _variant(function: F, *, metric: str, variant: str, refine_min: str, refine_max: str) -> F:
    """The four options, each with what its help says of its default."""
    function = click.option(
        "--refine-max",
        callback=_steps,
        metavar="N|unbounded",
        help=f"Most steps of refinement (transductive); 0: none.  [default: {refine_max}]",
    )(function)
    function = click.option(
        "--refine-min",
        type=click.IntRange(min=0),
        help=f"Least steps of refinement (transductive).  [default: {refine_min}]",
    )(function)
    function = click.option(
        "--variant",
        type=click.Choice(["plain", *VARIANTS]),
        help="; ".join(f"{name}: {info.model}, {info.meaning}" for name, info in VARIANTS.items())
        + f".  [default: {variant}]",
    )(function)
    return click.option(
        "--metric",
        metavar=f"[{'|'.join(METRIC_NAMES)}]",
        callback=one_of(METRIC_NAMES, _metrics),
        help="Distance to the classes (simple): squared Mahalanobis, its root, squared L2, L1, cosine, negative dot "
        f"product.  [default: {metric}]",
    )(function)


def keep_features(function: F) -> F:
    """`--keep-features` of commands that embed images."""
    return click.option(
        "--keep-features",
        "keep",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder to keep features in, and to take those from that are there: another metric, variant or model with "
        "the same features of the same images then embeds nothing. 5 KB an image; yours to delete.",
    )(function)


def specs(function: F) -> F:
    """`--specs` of few-shot tasks."""
    return click.option(
        "--specs",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Folder of official Meta-Dataset specifications (NAME_dataset_spec.json), for which classes are for "
        "testing; not for mini- and tiered-imagenet, which have test splits.",
    )(function)


def recipes_specs(function: F) -> F:
    """`--specs` of verbs that train."""
    return click.option(
        "--specs",
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        help="Folder of Meta-Dataset's NAME_dataset_spec.json, for recipes that split classes by them.",
    )(function)


def workers(function: F) -> F:
    """`--workers` of few-shot tasks."""
    return click.option(
        "--workers",
        type=click.IntRange(min=0),
        help="Processes, each with one thread; 0 for none but this one. Results are the same for any number.  "
        "[default: one for each core; with a GPU 0]",
    )(function)


def _metrics() -> Iterable[str]:
    from cl_cnaps.gaussian import metric_names

    return metric_names()


def _encodings() -> Iterable[str]:
    from cl_cnaps.continual.encodings import ENCODINGS

    return ENCODINGS


def _steps(context: click.Context, option: click.Parameter, text: str | None) -> int | str | None:
    """A number of steps, or `unbounded`."""
    if text is None or text == "unbounded":
        return text
    return int(click.IntRange(min=0)(text, option, context))
