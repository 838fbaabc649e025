"""The runs of a recipe: options parsed by the verb's own command, and one run done in whatever process it is given to.

The options a recipe may set are those of the verb's command, so that a recipe with an option the command does not
have, or a value it does not take, is refused.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cl_cnaps.commands.experiments import COMMANDS, RUN_OPTIONS
from cl_cnaps.errors import BadInputError
from cl_cnaps.experiments import kind
from cl_cnaps.experiments.options import OPTIONS
from cl_cnaps.sweeps.engines import Reply, Task

if TYPE_CHECKING:
    from cl_cnaps.sweeps.recipe import Options, Recipe, Scalar
    from cl_cnaps.sweeps.sweep import PlannedRun

SWEEPS_OWN = ("out", "resume", "workers", "keep-features", "plots", "quiet", "json")
"""Options of verbs that the sweep decides."""
_FILES = ("weights", "backbone-weights", "specs", "lists")
"""Options whose value is a path, a name, or ROW=PATH."""
_SOURCES = ("folder:", "records:", "features:")
"""What stands before a path in the name of a source."""
_LISTS_OF_SOURCES = ("mixed:", "domains:")


def planned_runs(
    recipe: Recipe,
    where: str,
    *,
    smoke: bool = False,
    only: Sequence[tuple[str, str]] = (),
    changes: Sequence[tuple[str, str]] = (),
    elsewhere: bool = False,
) -> list[PlannedRun]:
    """Return the runs of a recipe that are chosen, then changed; each parsed by its verb's command.

    Runs that are computed `elsewhere` than in this folder have their paths from the root.
    """
    from cl_cnaps.sweeps.recipe import chosen, differing, distinct, words
    from cl_cnaps.sweeps.sweep import PlannedRun

    if recipe.verb not in COMMANDS:
        raise BadInputError(f"{where}: verb must be one of {', '.join(COMMANDS)}, got {recipe.verb!r}")
    changed = collected(recipe.verb, changes)
    runs = distinct([{**run, **changed} for run in chosen(recipe.runs(smoke=smoke), only)])
    names = differing(runs)
    return [
        PlannedRun(
            words(run, names) or recipe.name,
            recipe.verb,
            arguments(recipe.verb, from_root(run) if elsewhere else run, where),
        )
        for run in runs
    ]


def arguments(verb: str, given: Options, where: str) -> tuple[str, ...]:
    """Return the verb's command line for these options, once the command has parsed it."""
    known = {parameter_name(parameter): parameter for parameter in COMMANDS[verb].params}
    positional: list[str] = []
    words: list[str] = []
    for name, value in given.items():
        if name in SWEEPS_OWN:
            raise BadInputError(
                f"{where}: {name} is an option of the command that runs the recipe, not of the recipe"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(known)}"
            raise BadInputError(f"{where}: `cl-cnaps {verb}` has no option {name!r}{hint}")
        parameter = known[name]
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(parameter, click.Option):
                words += _option(parameter, one, f"{where}: {name}")
            else:
                positional.append(str(one))
    line = (*positional, *words)
    parse(verb, line, where)
    return line


def collected(verb: str, given: Sequence[tuple[str, str]]) -> Options:
    """Return pairs of names and values as options; of one that the verb lets repeat all values, of no other several."""
    repeatable = {
        parameter_name(one) for one in COMMANDS[verb].params if isinstance(one, click.Option) and one.multiple
    }
    found: dict[str, Scalar | tuple[Scalar, ...]] = {}
    for name in dict.fromkeys(name for name, _ in given):
        values = tuple(value for key, value in given if key == name)
        if len(values) > 1 and name not in repeatable:
            raise BadInputError(
                f"{name} is set {len(values)} times, to {' and '.join(values)}; `cl-cnaps {verb}` takes one"
            )
        found[name] = values if len(values) > 1 else values[0]
    return found


def parse(verb: str, line: Sequence[str], where: str) -> dict[str, Any]:
    """Return what the verb's command makes of a command line, without the options that the sweep decides."""
    try:
        parameters = COMMANDS[verb].make_context(verb, list(line)).params
    except click.ClickException as error:
        raise BadInputError(f"{where}: {error.format_message()}") from None
    return {
        name: value for name, value in parameters.items() if name not in RUN_OPTIONS or name == "download"
    }


def parameter_name(parameter: click.Parameter) -> str:
    """Return an option's long name without the dashes, as a recipe has it."""
    return max(parameter.opts, key=len).lstrip("-")


def _option(option: click.Option, value: Scalar, where: str) -> list[str]:
    if not option.is_flag:
        if isinstance(value, bool):
            raise BadInputError(f"{where} takes a value, not true or false")
        return [option.opts[-1], str(value)]
    on = {"true": True, "false": False}.get(str(value).lower())
    if on is None:
        raise BadInputError(f"{where} is true or false, not {value!r}")
    return [option.opts[-1]] if on else list(option.secondary_opts[-1:])


def do(task: Task) -> Reply:
    """Find the records of a run, or make them."""
    import torch

    from cl_cnaps.experiments.base import execute
    from cl_cnaps.torch_setup import set_up_torch

    start = time.perf_counter()
    torch.set_num_threads(task.threads)
    set_up_torch()
    given = parse(task.verb, task.arguments, task.verb)
    download = given.pop("download")
    keep = None if task.keep is None else Path(task.keep)
    experiments = kind(task.verb).prepare(OPTIONS[task.verb](**given), download=download, keep=keep)
    records = [experiment.record_path(Path()).as_posix() for experiment in experiments]
    left = [one for one, record in zip(experiments, records, strict=True) if record not in task.have]
    if not left or task.look_only:
        others = tuple((record, None) for record in records[1:])
        return Reply(records[0], "absent" if left else "found", others=others)
    # Experiments use several cores by processes of one thread each, to the same result; a stream by its threads.
    workers = task.threads if task.threads > 1 else 0
    with _command_line(task), tempfile.TemporaryDirectory(prefix="cl-cnaps-sweep-") as folder:
        made = execute(left, Path(task.out or folder), resume=True, workers=workers)
        sent: dict[str, Mapping[str, bytes]] = {}
        if task.out is None:
            for one in made:
                files = {path.name: path.read_bytes() for path in one.path.iterdir()}
                sent[one.path.relative_to(folder).as_posix()] = files
    with_files = tuple((record, sent.get(record)) for record in records)
    return Reply(records[0], "made", time.perf_counter() - start, with_files[0][1], with_files[1:])


@contextmanager
def _command_line(task: Task) -> Iterator[None]:
    """The record's environment names the command that repeats this one run, not the sweep."""
    before = sys.argv
    sys.argv = ["cl-cnaps", task.verb, *task.arguments]
    try:
        yield
    finally:
        sys.argv = before


def from_root(given: Options) -> Options:
    """Return options with each path that is there from this folder given from the root; others are refused.

    So they mean the same in any folder of another machine.
    """
    return {
        name: tuple(_from_root(name, one) for one in value)
        if isinstance(value, tuple)
        else _from_root(name, value)
        for name, value in given.items()
    }


def _from_root(name: str, value: Scalar) -> Scalar:
    if not isinstance(value, str):
        return value
    if name == "class-order" and Path(value).is_file():  # a file, or names
        return _absolute(value, name)
    if name not in _FILES:
        return ",".join(map(_source, value.split(",") if name == "sources" else [value]))
    if Path(value).exists():
        before, path = "", value
    else:
        row, equals, path = value.partition("=")
        before, path = (f"{row}=", path) if equals and "/" not in row else ("", value)
    # As `find_weights` distinguishes a path from a name.
    is_name = name == "weights" and "/" not in path and not path.endswith(".safetensors")
    if is_name or path in ("auto", "random", "none"):
        return value
    return f"{before}{_absolute(path, name)}"


def _source(text: str) -> str:
    for prefix in _LISTS_OF_SOURCES:
        if text.startswith(prefix):
            return prefix + ",".join(map(_source, text.removeprefix(prefix).split(",")))
    for prefix in _SOURCES:
        if text.startswith(prefix):
            return f"{prefix}{_absolute(text.removeprefix(prefix), text)}"
    return text


def _absolute(path: str, where: str) -> str:
    if path.startswith(("/", "~")):
        return path
    if not Path(path).exists():
        raise BadInputError(
            f"{where}: there is no {path} in this folder. Nodes of a cluster have folders of their own: give the path "
            "from the root, as every node has it"
        )
    return str(Path(path).absolute())
