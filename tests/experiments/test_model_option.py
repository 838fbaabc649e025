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
        "    refine_min: int | None = option(",
        "    sharpness: str | None = option(\n"
        '        "How sharp.", choices=("usual", "high"), setting=True, usual=(None, "usual")\n'
        "    )\n    refine_min: int | None = option(",
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


def run(package: Path, *arguments: str) -> str:
    code = "from cl_cnaps.commands.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package), "CL_CNAPS_DATA": str(package / "no-data")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("verb", ["stream", "evaluate", "active", "ablate", "metatrain"])
def test_every_verb_has_it(package: Path, verb: str) -> None:
    assert "--sharpness [usual|high]" in run(package, verb, "--help")


def test_recipe_identity_and_label(package: Path) -> None:
    (package / "sharp.toml").write_text(RECIPE)
    small = ("--backbone", "resnet18", "--backbone-weights", "random", "--image-size", "16", "--no-plots")
    few = ("--runs", "1", "--shots", "2", "--queries", "2", "--encoding", "first", "--head", "single")
    out = run(package, "stream", "--sharpness", "high", *small, *few)
    assert "Simple CNAPS, sharpness high" in " ".join(out.split())
    (record,) = (package / "runs" / "stream" / "split-mnist").iterdir()
    assert json.loads((record / "config.json").read_text())["model_config"]["sharpness"] == "high"
    sets = [
        word
        for pair in zip(small[:-1:2], small[1:-1:2], strict=True)
        for word in ("--set", "=".join(pair)[2:])
    ]
    sets += [word for pair in zip(few[::2], few[1::2], strict=True) for word in ("--set", "=".join(pair)[2:])]
    planned = run(package, "sweep", "sharp.toml", "--dry-run", "--json", *sets)
    runs = [json.loads(line) for line in planned.splitlines()]
    assert [line["run"] for line in runs] == ["usual", "high"]
    assert [line["status"] for line in runs] == ["absent", "found"]
    assert runs[0]["record"] != runs[1]["record"]
