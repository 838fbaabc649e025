"""A model option is added in two files, and is then everywhere: command line, recipe, identity, label."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cl_cnaps

EDITS = {
    "experiments/options.py": (
        "    refine_min: int | None = number(",
        "    sharpness: str | None = option(\n"
        '        "How sharp.", choices=("usual", "high"), setting=True, usual=(None, "usual")\n'
        "    )\n    refine_min: int | None = number(",
    ),
    "models/config.py": (
        "    refine_min: int = 2\n",
        '    sharpness: str = "usual"\n    refine_min: int = 2\n',
    ),
}
RECIPE = """
verb = "stream"
[paper]
labels = ["tab:some"]
[[grid]]
sharpness = ["usual", "high"]
[smoke.options]
runs = 1
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one more option."""
    root = tmp_path_factory.mktemp("package")
    shutil.copytree(
        Path(cl_cnaps.__file__).parent, root / "cl_cnaps", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, (before, after) in EDITS.items():
        file = root / "cl_cnaps" / name
        text = file.read_text()
        assert text.count(before) == 1, name
        file.write_text(text.replace(before, after))
    return root


COMMANDS = """
import json, sys
from click.testing import CliRunner
from cl_cnaps.commands.main import main
for line in json.loads(sys.argv[1]):
    print(json.dumps(CliRunner().invoke(main, line, catch_exceptions=False).stdout))
"""


def run(package: Path, *commands: tuple[str, ...]) -> list[str]:
    """What commands print that are run one after another in one process."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(commands)],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package), "CL_CNAPS_DATA": str(package / "no-data")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_option_is_everywhere(package: Path) -> None:
    (package / "sharp.toml").write_text(RECIPE)
    small = ("--backbone", "resnet18", "--backbone-weights", "random", "--image-size", "16")
    few = ("--runs", "1", "--shots", "2", "--queries", "2", "--encoding", "first", "--head", "single")
    given = (*small, *few)
    sets = [word for name, value in zip(given[::2], given[1::2], strict=True)
            for word in ("--set", f"{name[2:]}={value}")]  # fmt: skip
    verbs = ("stream", "evaluate", "active", "ablate", "metatrain")
    *helps, table, planned = run(
        package,
        *((verb, "--help") for verb in verbs),
        ("stream", "--sharpness", "high", "--no-plots", *given),
        ("sweep", "sharp.toml", "--dry-run", "--json", *sets),
    )
    for verb, text in zip(verbs, helps, strict=True):
        assert "--sharpness [usual|high]" in text, verb
    assert "Simple CNAPS, sharpness high" in " ".join(table.split())
    (record,) = (package / "runs" / "stream" / "split-mnist").iterdir()
    assert json.loads((record / "config.json").read_text())["model_config"]["sharpness"] == "high"
    runs = [json.loads(line) for line in planned.splitlines()]
    assert [line["run"] for line in runs] == ["usual", "high"]
    assert [line["status"] for line in runs] == ["absent", "found"]
    assert runs[0]["record"] != runs[1]["record"]
