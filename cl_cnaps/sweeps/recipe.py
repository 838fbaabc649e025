"""A sweep's recipe: the runs behind one table or figure, in one TOML file.

verb = "stream"                              the command that makes each run
[paper]                                      what it reproduces, if it is in the paper: LaTeX labels, and the file of
labels = ["tab:..."]                         cl_cnaps/report/paper/ that holds the figures, if any are printed
data = "continual.toml"
[options]                                    the command's options, the same for all runs
[[grid]]                                     lists are multiplied out; several grids follow each other
[smoke.options]                              what is different when the recipe is only tried out:
[[smoke.grid]]                               options are replaced one by one, grids all together
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.recipes import read_toml

Scalar = str | int | float | bool
Options = Mapping[str, Scalar | tuple[Scalar, ...]]
"""Several values are those of an option that may be repeated."""
Grid = Mapping[str, tuple[Scalar, ...]]


@dataclass(frozen=True)
class Paper:
    """What a recipe reproduces."""

    labels: tuple[str, ...] = ()
    """LaTeX labels of tables and figures; none of what the paper does not have."""
    data: str | None = None
    """The file of cl_cnaps/report/paper/ that holds the printed figures; none where only a curve is drawn."""
    trained_on: str = "benchmark"
    """Which of its few-shot figures are meant: trained on the benchmark's classes, or on those of `imagenet` alone."""


@dataclass(frozen=True)
class Recipe:
    """One sweep."""

    name: str
    verb: str
    paper: Paper
    options: Options
    grids: tuple[Grid, ...]
    smoke_options: Options
    smoke_grids: tuple[Grid, ...] | None

    def runs(self, *, smoke: bool = False) -> list[Options]:
        """The options of every run, in the order of the grids; the same run is not named twice."""
        fixed, grids = self.options, self.grids
        if smoke:
            fixed = {**fixed, **self.smoke_options}
            grids = grids if self.smoke_grids is None else self.smoke_grids
        return distinct({**fixed, **point} for grid in grids for point in _points(grid))


def read_sweep_recipe(path: Path) -> Recipe:
    """A recipe from its file."""
    return parse_sweep_recipe(read_toml(path), path.name, path.stem)


def parse_sweep_recipe(content: Mapping[str, Any], where: str, name: str) -> Recipe:
    """A recipe from the content of a TOML file. Whether the verb has these options is the verb's to say."""
    if "verb" not in content:
        raise BadInputError(
            f"{where} has no `verb`, so it is no recipe of a sweep; those in benchmarks/training are for "
            "`cl-cnaps metatrain` and `cl-cnaps pretrain`"
        )
    _known(content, ("verb", "paper", "options", "grid", "smoke"), where)
    if not isinstance(content["verb"], str):
        raise BadInputError(f"{where}: verb must be text, got {content['verb']!r}")
    smoke = _table(content.get("smoke", {}), f"{where}: smoke")
    _known(smoke, ("options", "grid"), f"{where}: smoke")
    if not smoke:
        raise BadInputError(f"{where} lacks a [smoke.options] or [smoke.grid]: every recipe can be tried out")
    return Recipe(
        name,
        content["verb"],
        _paper(content["paper"], f"{where}: paper") if "paper" in content else Paper(),
        _options(content.get("options", {}), f"{where}: options"),
        _grids(content.get("grid", [{}]), f"{where}: grid"),
        _options(smoke.get("options", {}), f"{where}: smoke.options"),
        _grids(smoke["grid"], f"{where}: smoke.grid") if "grid" in smoke else None,
    )


def chosen(runs: Sequence[Options], only: Sequence[tuple[str, str]]) -> list[Options]:
    """The runs whose options are as `only` gives them; several values of one option are alternatives."""
    for name, value in only:
        there = sorted({_text(run[name]) for run in runs if name in run})
        if value not in there:
            have = f"there are {', '.join(there)}" if there else "no run has that option"
            raise BadInputError(f"no run of the recipe has {name} = {value}: {have}")
    wanted = {name: {value for key, value in only if key == name} for name, _ in only}
    found = [
        run
        for run in runs
        if all(name in run and _text(run[name]) in values for name, values in wanted.items())
    ]
    if not found:
        raise BadInputError("no run of the recipe is left; the choices exclude each other")
    return found


def distinct(runs: Iterator[Options] | Sequence[Options]) -> list[Options]:
    """Return each run once, in order."""
    return [dict(items) for items in dict.fromkeys(tuple(run.items()) for run in runs)]


def differing(runs: Sequence[Options]) -> list[str]:
    """The options that not all runs have in common."""
    names = dict.fromkeys(name for run in runs for name in run)
    return [name for name in names if len({run.get(name) for run in runs}) > 1]


def words(run: Options, names: Sequence[str]) -> str:
    """The options that distinguish a run from the others: `simple first split-mnist`, `seed 3`."""
    parts = (
        value if isinstance(value := run[name], str) else f"{name} {_text(value)}"
        for name in names
        if name in run
    )
    return " ".join(str(part) for part in parts)


def _text(value: object) -> str:
    """Return a value as a recipe writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _points(grid: Grid) -> Iterator[Options]:
    return (dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


def _paper(content: Any, where: str) -> Paper:
    table = _table(content, where)
    _known(table, ("labels", "data", "trained-on"), where)
    labels, data, trained_on = table.get("labels"), table.get("data"), table.get("trained-on", "benchmark")
    if trained_on not in ("benchmark", "imagenet"):
        raise BadInputError(f"{where}.trained-on must be benchmark or imagenet, got {trained_on!r}")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise BadInputError(f"{where}.labels must be a list of the paper's LaTeX labels, got {labels!r}")
    if data is not None:
        file = resources.files("cl_cnaps.report.paper").joinpath(str(data))
        if not isinstance(data, str) or "/" in data or not data.endswith(".toml") or not file.is_file():
            raise BadInputError(f"{where}.data: there is no {data!r} in cl_cnaps/report/paper")
    return Paper(tuple(labels), data, trained_on)


MAX_RUNS = 100_000
"""Most runs of one recipe: more were never meant."""


def _grids(content: Any, where: str) -> tuple[Grid, ...]:
    tables = content if isinstance(content, list) else [content]
    if not tables:
        raise BadInputError(f"{where} is an empty list: there would be nothing to run")
    grids = []
    for number, table in enumerate(tables):
        path = where if len(tables) == 1 else f"{where}[{number}]"
        axes = {
            name: tuple(value) if isinstance(value, list) else (value,)
            for name, value in _table(table, path).items()
        }
        for name, values in axes.items():
            if not values:
                raise BadInputError(f"{path}.{name} is an empty list: there would be nothing to run")
            for value in values:
                _scalar(value, f"{path}.{name}")
        grids.append(axes)
    if (runs := sum(math.prod(map(len, grid.values())) for grid in grids)) > MAX_RUNS:
        raise BadInputError(f"{where} multiplies out to {runs:,} runs; at most {MAX_RUNS:,} are run")
    return tuple(grids)


def _options(content: Any, where: str) -> Options:
    table = _table(content, where)
    for name, value in table.items():
        _scalar(value, f"{where}.{name}")
    return table


def _scalar(value: Any, where: str) -> None:
    if isinstance(value, list):
        raise BadInputError(f"{where} is a list; what is to be multiplied out belongs in [[grid]]")
    if not isinstance(value, str | int | float):
        raise BadInputError(f"{where} must be text, a number, true or false, got {value!r}")


def _table(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadInputError(f"{where} must be a table, got {content!r}")
    return content


def _known(table: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if unknown := [key for key in table if key not in names]:
        raise BadInputError(f"{where} has an unknown key {unknown[0]!r}; known are {', '.join(names)}")
