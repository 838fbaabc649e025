"""Options of the command line: those that several verbs share, and those made from what experiments declare."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, TypeVar

import click

from cl_cnaps.experiments.options import (
    MOST,
    ModelOptions,
    Option,
    option_name,
    options_of,
)


class Finite(click.FloatRange):
    """A number in a range; `nan` and `inf`, which compare with nothing, are not."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return number


F = TypeVar("F", bound=Callable[..., Any])

out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder that the run's record is written under.",
)
quiet = click.option("--quiet", "-q", is_flag=True, help="No progress and no table; errors still show.")
as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line on standard output, nothing else there.",
)
resume = click.option(
    "--resume",
    is_flag=True,
    help="Continue a killed run of the same configuration, or return the record of a finished one.",
)
resume_training = click.option(
    "--resume", is_flag=True, help="Go on from the last checkpoint of the same recipe under --out."
)
plots = click.option("--plots/--no-plots", default=True, show_default=True, help="Draw the charts.")
download = click.option(
    "--download/--no-download",
    default=True,
    show_default=True,
    help="Fetch missing data through torchvision.",
)
keep_features = click.option(
    "--keep-features",
    "keep",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder where features are kept and found again: another metric, variant or model with the same features of "
    "the same images then embeds nothing. 5 KB an image; yours to delete.",
)
workers = click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="Processes, each with one thread; 0 for none but this one. Results are the same for any number.  "
    "[default: one for each core; with a GPU 0]",
)
recipes_specs = click.option(
    "--specs",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder of Meta-Dataset's NAME_dataset_spec.json, by which recipes split classes. Else $CL_CNAPS_SPECS.",
)


def writable(folder: Path) -> None:
    """Refuse a folder that results could not be written to, before the work is done."""
    from cl_cnaps.data.atomic import try_folder

    try_folder(folder)


def resumable_from(checkpoint: Path) -> None:
    """State which file --resume needs, so that an interrupted command names --resume only if it is there."""
    click.get_current_context().find_root().meta["resumable"] = checkpoint.is_file


def declared_options(
    config: type, names: Sequence[str] | None = None, default: str | None = None
) -> Callable[[F], F]:
    """Make the options that a config declares, in order; `default` is what the help shows as the default of all."""

    def decorate(function: F) -> F:
        every = options_of(config)
        for name in reversed(list(every) if names is None else names):
            field, declared = every[name]
            function = _parameter(name, field, declared, default)(function)
        return function

    return decorate


def model_options(*names: str) -> Callable[[F], F]:
    """Make some of the options that all experiments share."""
    return declared_options(ModelOptions, names)


def recipes_options(*names: str) -> Callable[[F], F]:
    """Make some of these as options of verbs that train: what is not given is as in the recipe."""
    return declared_options(ModelOptions, names, "the recipe's")


seed, device = model_options("seed"), model_options("device")


def _parameter(name: str, field: Field[Any], declared: Option, default: str | None) -> Callable[[F], F]:
    if declared.argument:
        kind: Any = click.Choice(declared.choices) if declared.choices else None
        return click.argument(name, type=kind, required=declared.default is None)
    shown = default or declared.default
    settings: dict[str, Any] = {
        "help": declared.help + (f"  [default: {shown}]" if shown else ""),
        "metavar": declared.metavar,
    }
    if declared.type is bool:
        settings["is_flag"] = True
        del settings["metavar"]
    elif declared.form == "pairs":
        settings |= {"multiple": True, "callback": _pairs}
    elif declared.form == "list":
        settings |= {"multiple": True, "callback": _several(_type(declared))}
        settings["metavar"] = declared.metavar or ("N,N,..." if declared.type is int else "NAME,NAME,...")
    elif declared.also:
        settings["callback"] = _number_or_word(declared)
        settings["metavar"] = "|".join(("N", *declared.also))
    else:
        settings["type"] = _type(declared)
    if default is None and not any(field.default is one for one in (None, MISSING, False)):
        settings |= {"default": field.default, "show_default": True}
    return click.option(f"--{option_name(name, declared)}", name, **settings)


def _type(declared: Option) -> Any:
    if declared.registered:
        return _Names(declared.choices, declared.registered)
    if declared.choices:
        return click.Choice(declared.choices)
    if declared.type is int:
        return click.IntRange(
            None if declared.least is None else int(declared.least), int(declared.most or MOST)
        )
    if declared.type is float:
        return Finite(declared.least, declared.most, min_open=True)
    if declared.type is Path:
        return click.Path(exists=True, file_okay=False, path_type=Path)
    return click.STRING


def _several(kind: Any) -> Callable[..., tuple[Any, ...] | None]:
    """Values with commas between, from an option that may be repeated; None if it is not given."""

    def parse(
        context: click.Context, option: click.Parameter, given: tuple[str, ...]
    ) -> tuple[Any, ...] | None:
        parts = [part.strip() for text in given for part in text.split(",")]
        try:
            return tuple(kind(part, option, context) for part in parts) or None
        except click.BadParameter as error:
            example = ",".join(kind.choices[:2]) if isinstance(kind, click.Choice) else "5,10"
            raise click.BadParameter(
                f"{error.message} Give values with commas between, such as {example}."
            ) from None

    return parse


def _pairs(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    """`NAME=VALUE` of each time the option is given."""
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{text!r} is not {option.metavar}, such as plus=mine.safetensors")
    return dict(text.split("=", 1) for text in given) or None


class _Names(click.Choice[str]):
    """Names that are declared, or were registered in Python; the latter are loaded only if need be."""

    def __init__(self, choices: Sequence[str], registered: str) -> None:
        super().__init__(choices)
        self._module, _, self._names = registered.partition(":")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or refuse it with all there are."""
        if value in self.choices:
            return str(value)
        found: Any = getattr(importlib.import_module(f"cl_cnaps.{self._module}"), self._names)
        added = found() if callable(found) else found
        if value in added:
            return str(value)
        names = ", ".join(map(repr, dict.fromkeys((*self.choices, *added))))
        raise click.BadParameter(f"{value!r} is not one of {names}.", ctx, param)


def _number_or_word(declared: Option) -> Callable[..., int | str | None]:
    def parse(context: click.Context, option: click.Parameter, text: str | None) -> int | str | None:
        if text is None or text in declared.also:
            return text
        return int(_type(declared)(text, option, context))

    return parse
