"""An error that nobody foresaw: one line, a code, a log file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from cl_cnaps.commands.main import main


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> NoReturn:
        raise ZeroDivisionError("a bug\nof two lines \x1b[31m")

    monkeypatch.setattr("cl_cnaps.data.registry.listing", fail)


@pytest.mark.usefixtures("broken")
def test_one_line_a_code_and_a_log(own_cache: Path) -> None:
    results = [CliRunner().invoke(main, ["data", "list"]) for _ in range(2)]
    assert [result.exit_code for result in results] == [1, 1]
    (line,) = results[0].output.splitlines()
    assert "Traceback" not in line and "\x1b" not in line
    found = re.search(
        r"unforeseen ZeroDivisionError \(a bug\), code ([0-9a-f]{6}): .* (/\S+\.txt); please report", line
    )
    assert found, line
    assert "in fail" in Path(found[2]).read_text()
    assert results[1].output == results[0].output  # the same fault has the same code
    assert len(list((own_cache / "logs").iterdir())) == 1


@pytest.mark.usefixtures("broken")
def test_debug_shows_the_traceback() -> None:
    result = CliRunner().invoke(main, ["--debug", "data", "list"])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    "error", [MemoryError("no room"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_memory_that_runs_out_is_no_bug(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_: Path) -> NoReturn:
        raise error

    monkeypatch.setattr("cl_cnaps.data.registry.listing", fail)
    (line,) = CliRunner().invoke(main, ["data", "list"]).output.splitlines()
    assert line.startswith(f"Error: not enough memory ({error}); a smaller --image-size")


@pytest.mark.usefixtures("broken")
def test_a_log_that_cannot_be_written(own_cache: Path) -> None:
    own_cache.write_text("a file where the folder should be")
    (line,) = CliRunner().invoke(main, ["data", "list"]).output.splitlines()
    assert "could not be written: repeat the command as `cl-cnaps --debug ...`" in line


@pytest.mark.parametrize(
    "arguments", [["--weights", ""], ["--weights="], ["--backbone", " "], ["--out", ""], [""]]
)
@pytest.mark.parametrize("verb", ["stream", "evaluate", "active", "metatrain", "report", "plot"])
def test_empty_arguments_are_refused_by_every_verb(verb: str, arguments: list[str]) -> None:
    result = CliRunner().invoke(main, [verb, *arguments])
    assert result.exit_code == 2
    assert f"an argument is empty ({(arguments[0] or verb).rstrip('=')})" in result.output
