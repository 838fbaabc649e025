"""The verbs that a recipe can sweep over: how options become a run, and what number its record is made for.

Another verb is one more entry in `VERBS`. The options a recipe may set are those of the verb's own command, parsed by
it, so that a recipe with an option the command does not have, or a value it does not take, is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from cl_cnaps.commands.evaluate import evaluate
from cl_cnaps.commands.stream import run_of_options, stream
from cl_cnaps.errors import BadInputError

if TYPE_CHECKING:
    from cl_cnaps.results.record import Record
    from cl_cnaps.sweeps.recipe import Options, Paper, Scalar
    from cl_cnaps.sweeps.table import Headline

SWEEPS_OWN = ("out", "resume", "workers", "plots", "quiet", "json")
"""Options of verbs that the sweep decides."""


class Prepared(Protocol):
    """A run with its data open and its model loaded."""

    def place(self, out: Path) -> Path:
        """Where its record is, or will be."""

    def run(self, out: Path, threads: int) -> None:
        """Run it and write its record."""


@dataclass(frozen=True)
class SweepVerb:
    """One verb."""

    command: click.Command
    prepare: Callable[[dict[str, Any]], Prepared]
    """From the command's parsed parameters, without those that the sweep decides."""
    headlines: Callable[[Record, Paper], list[Headline]]


def verb_named(name: str, where: str) -> SweepVerb:
    """A verb of `VERBS`."""
    if name not in VERBS:
        raise BadInputError(f"{where}: verb must be one of {', '.join(VERBS)}, got {name!r}")
    return VERBS[name]


def arguments(verb: SweepVerb, options: Options, where: str) -> tuple[str, ...]:
    """The verb's command line for these options, once the command has parsed it."""
    known = {_name(parameter): parameter for parameter in verb.command.params}
    positional: list[str] = []
    words: list[str] = []
    for name, value in options.items():
        if name in SWEEPS_OWN:
            raise BadInputError(f"{where}: {name} is not for a recipe to say, but for `cl-cnaps sweep`")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known)}"
            raise BadInputError(f"{where}: `cl-cnaps {verb.command.name}` has no option {name!r}{hint}")
        parameter = known[name]
        if isinstance(parameter, click.Option):
            words += _option(parameter, value, f"{where}: {name}")
        else:
            positional.append(str(value))
    said = (*positional, *words)
    parse(verb, said, where)
    return said


def parse(verb: SweepVerb, said: tuple[str, ...], where: str) -> dict[str, Any]:
    """What the verb's command makes of a command line, without those options that the sweep decides."""
    command = verb.command
    try:
        parameters = command.make_context(command.name, list(said)).params
    except click.ClickException as error:
        raise BadInputError(f"{where}: {error.format_message()}") from None
    own = {parameter.name for parameter in command.params if _name(parameter) in SWEEPS_OWN}
    return {name: value for name, value in parameters.items() if name not in own}


def _name(parameter: click.Parameter) -> str:
    """As a recipe calls it: an option's long name without the dashes."""
    return max(parameter.opts, key=len).lstrip("-")


def _option(option: click.Option, value: Scalar, where: str) -> list[str]:
    if not option.is_flag:
        if isinstance(value, bool):
            raise BadInputError(f"{where} takes a value, not true or false")
        return [option.opts[-1], str(value)]
    on = {"true": True, "false": False}.get(str(value).lower())
    if on is None:
        raise BadInputError(f"{where} is true or false, not {value!r}")
    if on:
        return [option.opts[-1]]
    return list(option.secondary_opts[-1:])


class _Stream:
    def __init__(self, asked: dict[str, Any]) -> None:
        from cl_cnaps.commands.torch_setup import set_up_torch
        from cl_cnaps.results.stream_run import prepare_stream

        if asked["encoding"] == "all":
            raise BadInputError("a run has one encoding: list them in the recipe's grid in place of all")
        set_up_torch()
        download = asked.pop("download")
        self._prepared = prepare_stream(run_of_options(**asked), download=download)

    def place(self, out: Path) -> Path:
        return self._prepared.place(out)

    def run(self, out: Path, threads: int) -> None:  # noqa: ARG002 - PyTorch has been told
        from cl_cnaps.commands.watching import StreamWatch

        self._prepared.run(out, resume=True, progress=StreamWatch(quiet=True))


def _stream_headlines(record: Record, _paper: Paper) -> list[Headline]:
    from cl_cnaps.sweeps.table import Headline

    return [
        Headline(head["head"], head["final_accuracy"]["mean"], head["final_accuracy"]["ci95"], head["paper"])
        for head in record.summary["heads"]
    ]


class _Evaluate:
    def __init__(self, asked: dict[str, Any]) -> None:
        from cl_cnaps.results.few_shot_run import FewShotRun, prepare_few_shot

        self._prepared = prepare_few_shot(FewShotRun(**asked))

    def place(self, out: Path) -> Path:
        return self._prepared.place(out)

    def run(self, out: Path, threads: int) -> None:
        # An evaluation uses cores by processes of one thread each, to the same result.
        self._prepared.run(out, workers=threads if threads > 1 else 0)


def _evaluate_headlines(record: Record, paper: Paper) -> list[Headline]:
    from cl_cnaps.sweeps.table import Headline

    return [
        Headline(
            f"{entry['title']}, {entry['shape']}, {entry['queries']} queries",
            entry["accuracy"]["mean"],
            entry["accuracy"]["ci95"],
            entry["paper_imagenet" if paper.trained_on == "imagenet" else "paper"],
        )
        for entry in record.summary["results"]
    ]


VERBS: Mapping[str, SweepVerb] = {
    "stream": SweepVerb(stream, _Stream, _stream_headlines),
    "evaluate": SweepVerb(evaluate, _Evaluate, _evaluate_headlines),
}
