"""Fill the generated parts of Markdown files from the records in a results folder.

    python -m cl_cnaps.commands.pages results README.md docs/*.md results/README.md [--check]

With --check nothing is written, and a file that is out of date is an error.

The list of records in results/README.md names for each its recipe, its command and the options that differ from the
recipe's nearest run: both are parsed, so that the list shows how a sweep would make the record.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cl_cnaps.commands.experiments import COMMANDS
from cl_cnaps.commands.sweep_runs import SWEEPS_OWN, arguments, parameter_name
from cl_cnaps.data.atomic import write_bytes
from cl_cnaps.records.environment import repeating
from cl_cnaps.records.record import Record, records_under
from cl_cnaps.report.generated import TABLES, filled
from cl_cnaps.report.labels import adaptation_words, count, model_name, row_name
from cl_cnaps.sweeps.recipe import Recipe, read_sweep_recipe

_RECIPES = {
    "stream/mixed-domains-": "streams/mixed-domains.toml",
    "stream/fscil-": "streams/fscil.toml",
    "stream/permuted-mnist-": "streams/permuted-mnist.toml",
    "stream/cifar100-": "streams/class-incremental.toml",
    "stream/": "continual.toml",
    "evaluate/meta-dataset-": "meta-dataset.toml",
    "evaluate/mini-imagenet-": "mini-tiered.toml",
    "evaluate/tiered-imagenet-": "mini-tiered.toml",
    "evaluate/": "one-shot.toml",
    "ablate/adaptation-": "ablations/adaptation.toml",
    "ablate/metric-": "ablations/metric.toml",
    "ablate/gmm-": "ablations/model.toml",
    "ablate/transduction-": "ablations/model.toml",
    "ablate/refinement-": "ablations/refinement-grid.toml",
    "ablate/shots-": "shots.toml",
    "ablate/queries-": "queries.toml",
    "active/cifar10-": "active/cifar10.toml",
    "active/omniglot-": "active/omniglot.toml",
}
"""Of which table or figure a record is, by how its verb and name begin; in benchmarks/."""
_NOT_NUMBERS = ("specs", "device", "download")
"""Options that change no number: where data are, and the device."""

ParsedOptions = dict[str, Any]
"""Options of a verb with their values."""


def record_list(results: Path) -> str:
    """Markdown: every record below a results folder, beside which benchmarks/ is."""
    lines = [
        "| record | what | recipe | with | command | commit | finished |",
        "| :--- | :--- | :--- | :--- | :--- | :--- | :--- |",
    ]
    recipes: dict[str, list[ParsedOptions]] = {}
    for record in sorted(records_under(results), key=lambda record: str(record.path)):
        path, environment = record.path.relative_to(results), record.environment
        commit = (environment["code"]["commit"] or environment["code"]["version"])[:10]
        link = changes = ""
        if name := recipe_of(record):
            if name not in recipes:
                recipes[name] = planned(read_sweep_recipe(results.parent / "benchmarks" / name))
            link = f"[{name}](../benchmarks/{name})"
            changes = " ".join(
                f"`{key}={value}`" for key, value in differences(record, recipes[name]).items()
            )
        lines.append(
            f"| [{path}]({path}) | {_what(record)} | {link} | {changes} | `{repeating(environment['command'])}` "
            f"| {commit} | {environment['finished'][:10]} |"
        )
    return "\n".join(lines)


def recipe_of(record: Record) -> str:
    """The recipe in benchmarks/ of the table or figure that a record belongs to; nothing where there is none."""
    path = f"{record.verb}/{record.name}-"
    if path.startswith("stream/split-") and "--features" in record.environment["command"]:
        return "streams/rivals.toml"
    return next((recipe for start, recipe in _RECIPES.items() if path.startswith(start)), "")


def planned(recipe: Recipe) -> list[ParsedOptions]:
    """The options of each run of a recipe."""
    return [_parsed(recipe.verb, arguments(recipe.verb, run, recipe.name)) for run in recipe.runs()]


def differences(record: Record, runs: Sequence[ParsedOptions]) -> dict[str, str]:
    """The options that `--set` must give a sweep of these runs to make a record: none if one of them makes it."""
    options = _parsed(record.verb, tuple(shlex.split(record.environment["command"])[2:]))
    if record.config.get("adaptation") == "none" and record.config.get("baseline_on") is None:
        options["adaptation"] = "none"  # by itself where no weights were shipped then; there may be now
    found: list[dict[str, str]] = []
    fields = {parameter_name(one): str(one.name) for one in COMMANDS[record.verb].params}
    for run in runs:
        chosen = options.copy()
        for name in (name for name, value in options.items() if value is None and run[name]):
            decided = record.config.get(fields[name])  # the record has what the command left to be chosen
            chosen[name] = tuple(decided) if isinstance(decided, list) else decided
        found.append({name: _value_text(value) for name, value in chosen.items() if value != run[name]})
    return min(found, key=len)


def _parsed(verb: str, command_line: tuple[str, ...]) -> ParsedOptions:
    """The options that decide numbers, by their names in a recipe; a folder that is not there is no error."""
    command = COMMANDS[verb]
    context = command.make_context(verb, list(command_line), resilient_parsing=True)
    names = {one.name: parameter_name(one) for one in command.params}
    return {
        names[key]: value
        for key, value in context.params.items()
        if names[key] not in (*SWEEPS_OWN, *_NOT_NUMBERS)
    }


def _value_text(value: Any) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _what(record: Record) -> str:
    """Return what a record measured that its path does not name: the model, how its features adapt, how many tasks."""
    config: Mapping[str, Any] = record.config
    if record.verb == "speed":
        return count(config["threads"], "thread")
    if record.verb == "stream":
        return row_name(record.summary["rows"][0])
    parts = [model_name(config["model"])] if "model" in config else []
    parts.append(adaptation_words(config["adaptation"]))
    if "tasks" in config:
        parts.append(count(config["tasks"], "task"))
    return ", ".join(filter(None, parts))


PARTS: Mapping[str, Callable[[Path], str]] = {**TABLES, "record-list": record_list}


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--check", action="store_true", help="fail if a file is out of date; write nothing")
    arguments = parser.parse_args()
    for file in arguments.files:
        before = file.read_text(encoding="utf-8")
        after = filled(before, arguments.results, PARTS)
        if before != after and arguments.check:
            raise SystemExit(f"{file} is out of date: run python -m cl_cnaps.commands.pages")
        if before != after:
            write_bytes(file, after.encode())


if __name__ == "__main__":
    main()
