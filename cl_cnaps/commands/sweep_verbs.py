"""The verbs that a recipe can sweep over: how options become a run, and what number its record is made for.

Another verb is one more entry in `VERBS`. The options a recipe may set are those of the verb's own command, parsed by
it, so that a recipe with an option the command does not have, or a value it does not take, is refused.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from cl_cnaps.commands import active, evaluate, stream
from cl_cnaps.commands.ablate import ablate
from cl_cnaps.commands.task_bars import task_bars
from cl_cnaps.errors import BadInputError

if TYPE_CHECKING:
    from cl_cnaps.results.record import Record
    from cl_cnaps.sweeps.recipe import Options, Paper, Scalar
    from cl_cnaps.sweeps.table import Headline

SWEEPS_OWN = ("out", "resume", "workers", "keep-features", "plots", "quiet", "json")
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
    known = {option_name(parameter): parameter for parameter in verb.command.params}
    positional: list[str] = []
    words: list[str] = []
    for name, value in options.items():
        if name in SWEEPS_OWN:
            raise BadInputError(
                f"{where}: {name} is not for a recipe to say, but for the command that runs it"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known)}"
            raise BadInputError(f"{where}: `cl-cnaps {verb.command.name}` has no option {name!r}{hint}")
        parameter = known[name]
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(parameter, click.Option):
                words += _option(parameter, one, f"{where}: {name}")
            else:
                positional.append(str(one))
    said = (*positional, *words)
    parse(verb, said, where)
    return said


def collected(verb: SweepVerb, given: Sequence[tuple[str, str]]) -> Options:
    """Pairs of names and values as options; of one that the verb lets repeat all values, of no other several."""
    repeatable = {
        option_name(one) for one in verb.command.params if isinstance(one, click.Option) and one.multiple
    }
    found: dict[str, Scalar | tuple[Scalar, ...]] = {}
    for name in dict.fromkeys(name for name, _ in given):
        values = tuple(value for key, value in given if key == name)
        if len(values) > 1 and name not in repeatable:
            raise BadInputError(
                f"{name} is set {len(values)} times, to {' and '.join(values)}; "
                f"`cl-cnaps {verb.command.name}` takes one"
            )
        found[name] = values if len(values) > 1 else values[0]
    return found


def parse(verb: SweepVerb, said: tuple[str, ...], where: str) -> dict[str, Any]:
    """What the verb's command makes of a command line, without those options that the sweep decides."""
    command = verb.command
    try:
        parameters = command.make_context(command.name, list(said)).params
    except click.ClickException as error:
        raise BadInputError(f"{where}: {error.format_message()}") from None
    own = {parameter.name for parameter in command.params if option_name(parameter) in SWEEPS_OWN}
    return {name: value for name, value in parameters.items() if name not in own}


def option_name(parameter: click.Parameter) -> str:
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
        from cl_cnaps.results.stream_run import prepare_stream
        from cl_cnaps.torch_setup import set_up_torch

        if asked["encoding"] == "all":
            raise BadInputError("a run has one encoding: list them in the recipe's grid in place of all")
        set_up_torch()
        download = asked.pop("download")
        self._prepared = prepare_stream(stream.run_of_options(**asked), download=download)

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
        from cl_cnaps.results.few_shot_run import prepare_few_shot
        from cl_cnaps.torch_setup import set_up_torch

        set_up_torch()
        self._prepared = prepare_few_shot(evaluate.run_of_options(**asked))

    def place(self, out: Path) -> Path:
        return self._prepared.place(out)

    def run(self, out: Path, threads: int) -> None:
        with task_bars(silent=True) as watch:
            self._prepared.run(out, workers=_processes(threads), watch=watch)


def _evaluate_headlines(record: Record, paper: Paper) -> list[Headline]:
    column = "paper_imagenet" if paper.trained_on == "imagenet" else "paper"
    return [_task_headline("", entry, column) for entry in record.summary["results"]]


def _task_headline(before: str, entry: Mapping[str, Any], column: str = "paper") -> Headline:
    from cl_cnaps.sweeps.table import Headline

    said = f"{before}{entry['title']}, {entry['shape']}, {entry['queries']} queries"
    return Headline(said, entry["accuracy"]["mean"], entry["accuracy"]["ci95"], entry[column])


class _Active:
    def __init__(self, asked: dict[str, Any]) -> None:
        from cl_cnaps.results.active_run import prepare_active
        from cl_cnaps.torch_setup import set_up_torch

        set_up_torch()
        download = asked.pop("download")
        prepared = prepare_active(active.run_of_options(**asked), download=download)
        if len(prepared) > 1:
            raise BadInputError(
                "a run has adapted or frozen features: list film and none as `adaptation` in the recipe's grid"
            )
        (self._prepared,) = prepared

    def place(self, out: Path) -> Path:
        return self._prepared.place(out)

    def run(self, out: Path, threads: int) -> None:
        from cl_cnaps.commands.watching import ActiveWatch

        workers, watch = _processes(threads), ActiveWatch(quiet=True)
        self._prepared.run(out, workers=workers, resume=True, progress=watch)


def _active_headlines(record: Record, _paper: Paper) -> list[Headline]:
    """Accuracy with the last labels, of each strategy; the mean over tasks where there are several."""
    from statistics import fmean

    from cl_cnaps.sweeps.table import Headline

    lines = []
    for strategy in dict.fromkeys(entry["strategy"] for entry in record.summary["results"]):
        mine = [entry for entry in record.summary["results"] if entry["strategy"] == strategy]
        ends = [entry["accuracy"]["mean"][-1] for entry in mine]
        single = len(mine) == 1 and mine[0]["accuracy"]["ci95"] is not None
        said = (
            f"{strategy}, {mine[0]['labels'][-1]} labels"
            if len(mine) == 1
            else f"{strategy}, {len(mine)} tasks"
        )
        lines.append(Headline(said, fmean(ends), mine[0]["accuracy"]["ci95"][-1] if single else None, None))
    return lines


class _Ablate:
    def __init__(self, asked: dict[str, Any]) -> None:
        from cl_cnaps.results.ablation_run import AblationRun, prepare_ablation
        from cl_cnaps.torch_setup import set_up_torch

        set_up_torch()
        self._prepared = prepare_ablation(AblationRun(**asked))

    def place(self, out: Path) -> Path:
        return self._prepared.place(out)

    def run(self, out: Path, threads: int) -> None:
        with task_bars(silent=True) as watch:
            self._prepared.run(out, workers=_processes(threads), resume=True, watch=watch)


def _ablate_headlines(record: Record, paper: Paper) -> list[Headline]:
    """The mean over data sets of each row, or its data sets and shapes where there is no such mean."""
    from cl_cnaps.sweeps.table import Headline

    lines = []
    for row in record.summary["rows"]:
        if (mean := row["averages"].get("all")) is None:
            lines += [_task_headline(f"{row['title']}: ", entry) for entry in row["results"]]
            continue
        theirs = None
        if mean["paper"] is not None:
            theirs = {"mean": mean["paper"], "interval": None, "label": paper.labels[0]}
        sets = len(mean["data_sets"])
        said = f"{row['title']}, {sets} data set{'' if sets == 1 else 's'}"
        lines.append(Headline(said, mean["accuracy"], None, theirs))
    return lines


def _processes(threads: int) -> int:
    """These verbs use several cores by processes of one thread each, to the same result."""
    return threads if threads > 1 else 0


VERBS: Mapping[str, SweepVerb] = {
    "stream": SweepVerb(stream.stream, _Stream, _stream_headlines),
    "evaluate": SweepVerb(evaluate.evaluate, _Evaluate, _evaluate_headlines),
    "active": SweepVerb(active.active, _Active, _active_headlines),
    "ablate": SweepVerb(ablate, _Ablate, _ablate_headlines),
}
