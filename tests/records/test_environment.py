from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cl_cnaps import __version__
from cl_cnaps.commands.main import main
from cl_cnaps.records import environment
from cl_cnaps.records.environment import code_version, command_line, describe_environment, repeating
from cl_cnaps.records.strict_json import dumps


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", "-C", folder, *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_it_names_versions_hardware_and_what_the_caller_adds() -> None:
    found = describe_environment({"seeds": [3], "data": {"mnist": "sha256:00"}})
    assert found["packages"]["torch"].startswith("2.")
    assert found["packages"]["avalanche-lib"]
    assert found["cpu"]["cores"] >= 1
    assert found["cpu"]["model"]
    assert (found["seeds"], found["data"]) == ([3], {"mnist": "sha256:00"})


def test_it_names_no_folder_of_this_machine() -> None:
    text = dumps(describe_environment(), "environment")
    assert str(Path.home()) not in text
    assert str(Path(__file__).parents[2]) not in text


def test_the_command_line_is_what_was_typed_without_the_launchers_folder() -> None:
    typed = ["/opt/env/bin/cl-cnaps", "stream", "--name", "my birds"]
    assert command_line(typed) == "cl-cnaps stream --name 'my birds'"
    assert command_line(["cli.py", "stream"]) == "cl-cnaps stream"
    assert command_line(["/opt/env/bin/pytest", "-q"]) is None


def test_a_file_that_extends_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = ["/home/me/mine.py", "active", "--strategies", "margin"]
    assert command_line(typed) is None
    monkeypatch.setattr(sys.modules["__main__"], "main", main, raising=False)
    assert command_line(typed) == "python mine.py active --strategies margin"
    assert command_line(["/opt/env/bin/pytest", "-q"]) is None


def test_a_record_is_repeated_by_a_command_that_takes_nothing_from_it() -> None:
    typed = "cl-cnaps active --source 'folder:my birds' --out results --resume --workers=2 --keep-features f --seed 3"
    assert repeating(typed) == "cl-cnaps active --source 'folder:my birds' --seed 3"
    assert repeating("cl-cnaps stream --no-plots --out") == "cl-cnaps stream"


def test_the_commit_is_that_of_the_checkout_the_package_runs_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cl_cnaps"
    package.mkdir()
    (package / "__init__.py").write_text("")
    nowhere = {"version": __version__, "commit": None, "dirty": None}
    assert code_version(package) == nowhere
    git(tmp_path, "init", "-q")
    assert code_version(package) == nowhere, "an environment inside somebody else's repository"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert code_version(package) == {"version": __version__, "commit": commit, "dirty": False}
    (tmp_path / "results.csv").write_text("not code")
    assert code_version(package)["dirty"] is False
    (package / "new.py").write_text("")
    assert code_version(package)["dirty"] is True
    monkeypatch.setattr(environment, "_git", lambda _, verb, *__: None if verb == "status" else "known")
    assert code_version(package)["dirty"] is None, "git did not answer in time: not known to be clean"
