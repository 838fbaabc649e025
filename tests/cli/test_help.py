"""Help: there for every command, without heavy imports, at once."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cl_cnaps.commands.main import main

HEAVY = (
    "torch",
    "torchvision",
    "timm",
    "avalanche",
    "pandas",
    "matplotlib",
    "numpy",
    "sklearn",
    "PIL",
    "safetensors",
    "jinja2",
    "rich",
    "webbrowser",
)


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group, with the words that lead to it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*path, name))


EVERY = [pytest.param(path, command, id=" ".join(path) or "cl-cnaps") for path, command in commands(main)]


@pytest.mark.parametrize(("path", "command"), EVERY)
def test_every_command_and_option_says_what_it_does(path: tuple[str, ...], command: click.Command) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert command.help, "no help text"
    assert command.help.strip()[0].isupper()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help text"


def test_the_tree_has_the_verbs_that_are_promised() -> None:
    paths = {" ".join(path) for path, _ in commands(main)}
    assert {"stream", "metatrain", "data embed", "weights list", "weights show", "weights import"} <= paths


def test_help_imports_nothing_heavy() -> None:
    """One process asks for the help of every command, as the program would, and looks at what it has loaded."""
    script = """
import contextlib, io, json, sys
from cl_cnaps.commands.main import main
loaded = {}
for path in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*path, "--help"])
    assert "Usage:" in out.getvalue(), path
    loaded[" ".join(path)] = [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps(loaded))
"""
    paths = [path for path, _ in commands(main)]
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(paths), json.dumps(HEAVY)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    heavy = {path: names for path, names in json.loads(done.stdout).items() if names}
    assert not heavy


def test_help_takes_less_than_half_of_importing_torch() -> None:
    verbs = [path for path, command in commands(main) if path]
    asked = [(), *verbs[:1], max(verbs, key=len)]

    def seconds(*arguments: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        return time.perf_counter() - start

    script = "from cl_cnaps.commands.main import main; main()"
    help_, torch = [], []
    for path in asked:  # interleaved, so that a busy machine slows both
        help_.append(seconds("-c", script, *path, "--help"))
        torch.append(seconds("-c", "import torch"))
    assert statistics.median(help_) < 0.5 * statistics.median(torch), (help_, torch)


def test_the_launcher_is_the_command() -> None:
    launcher = Path(__file__).parents[2] / "cli.py"
    done = subprocess.run([sys.executable, str(launcher), "--version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == CliRunner().invoke(main, ["--version"]).stdout


def test_an_unknown_verb() -> None:
    result = CliRunner().invoke(main, ["wieghts"])
    assert result.exit_code == 2
    assert "No such command" in result.output


def test_the_version() -> None:
    import cl_cnaps

    assert (
        CliRunner().invoke(main, ["--version"]).output.strip() == f"cl-cnaps, version {cl_cnaps.__version__}"
    )
