"""Option values that no setting can have: one line, before any work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cl_cnaps.commands.main import main
from cl_cnaps.continual.planning import ordered, read_class_order
from cl_cnaps.errors import BadInputError

DIGITS = "9" * 6000
STREAM = ("stream", "--benchmark", "folder:nowhere", "--no-download")


def numbers(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    """Every option of every verb that is a number or a list of numbers."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from numbers(command, (*path, name))
        elif command is not None:
            for parameter in command.params:
                if isinstance(
                    parameter.type, click.IntRange | click.FloatRange | type(click.INT) | type(click.FLOAT)
                ):
                    yield " ".join((*path, name, *parameter.opts[-1:])), parameter


NUMBERS = dict(numbers(main))


def test_there_are_some() -> None:
    assert len(NUMBERS) > 40


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    "value", ["nan", "inf", "-inf", "-1", "1e400", DIGITS, "99999999999999999999", "x", ""]
)
def test_numbers(name: str, value: str) -> None:
    parameter = NUMBERS[name]
    kind = parameter.type.types[0] if isinstance(parameter.type, click.Tuple) else parameter.type
    is_float = isinstance(kind, click.FloatRange)
    if is_float and value == "99999999999999999999" and kind.max is None:
        return
    with pytest.raises(click.BadParameter):
        kind.convert(value, parameter, None)


@pytest.mark.parametrize(
    "words",
    [
        (*STREAM, "--seed", DIGITS),
        (*STREAM, "--shots", DIGITS),
        (*STREAM, "--shots", "nan"),
        (*STREAM, "--classes-per-task", "1,nan"),
        (*STREAM, "--device", "meta"),
        (*STREAM, "--class-order", f"seed:{DIGITS}"),
        (*STREAM, "--class-order", "~nouser/x"),
        ("stream", "--benchmark", "folder:~nouser/x"),
        (*STREAM, "--model", "simple\x1b[2J"),
        ("active", "--reach", "nan"),
        ("predict", "x.safetensors", "y", "--unknown", "nan"),
        ("data", "convert", "folder:x", "--fractions", "nan", "0", "0"),
        ("weights", "show", ""),
        ("recipes", "show", "../../etc/passwd"),
    ],
)
def test_one_line(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code in (1, 2)
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(line) < 4100
    assert "unforeseen" not in line and "\x1b" not in line


def test_a_seed_of_many_digits() -> None:
    with pytest.raises(BadInputError, match="needs a seed"):
        read_class_order(f"seed:{DIGITS}")
    with pytest.raises(BadInputError, match="has no class"):
        ordered(("a", "b"), (DIGITS,), None, "letters")


def test_a_class_order_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "order.txt").write_bytes(b"\xff\n")
    with pytest.raises(BadInputError, match=r"order\.txt: not a text file in UTF-8"):
        read_class_order(str(tmp_path / "order.txt"))
