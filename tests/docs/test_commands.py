"""Every command and every Python block of README and docs runs, made small where it would take long."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from data.pictures import class_folders, zipped

from cl_cnaps.commands.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("cl-cnaps ", "python cli.py ")

SMALL = {
    "stream": "--runs 1 --shots 3 --queries 3 --image-size 32 --no-plots --quiet",
    "evaluate": "--tasks 2 --queries 2 --image-size 32 --workers 0 --quiet",
    "active": "--initial 2 --per-round 2 --rounds 1 --runs 1 --pool 4 --test 3 --image-size 32 --workers 0 --quiet",
    "ablate": "--tasks 1 --image-size 32 --sources omniglot --workers 0 --quiet",
    "sweep": "--dry-run",
    "metatrain": "--tasks 2",
}
"""Options that make a command of a verb a matter of seconds; they are added at the end, where later ones win."""

ELSEWHERE = {
    r"--engine ray": "tests/sweeps/test_ray.py runs a cluster of two nodes",
    r"cl-cnaps bench": "tests/benchmarking runs every benchmark in its quick form",
    r"pretrain .*imagenet": "needs ImageNet; tests/cli/test_metatrain.py pre-trains on a small source",
    r"metatrain .*(resnet18|efficientnet|RECIPE)": "hours; tests/training reads every recipe and trains small ones",
    r"weights[= ]\S*(resnet18|runs/metatrain)": "needs weights that an earlier training made",
    r"--paper": "hours; tests/cli/test_active.py checks what it changes",
    r"report --open": "opens a browser; tests/report builds the site",
    r"features:\S+\.npz|data embed": "tests/experiments/test_given_features.py makes and reads such files",
    r"report runs/": "needs records; tests/cli/test_report.py",
    r"mobilenet\.safetensors|mushrooms|small-digits": "tests/docs/test_extending.py makes these files",
}
"""What is run by another test, or needs what no machine has offline: a pattern of the command -> which, or why."""


def commands(page: Path) -> list[str]:
    """Return the commands of a page, of blocks marked `sh` and of indented lines, without comments."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [line.strip() for line in indented.replace("\\\n", " ").splitlines() if line.startswith("    ")]
    parts = [part.strip() for line in lines for part in re.split(r"&&|\s#\s", line)[: line.count("&&") + 1]]
    return [part for part in parts if part.startswith(PROGRAMS)]


def small(command: str) -> list[str]:
    """Return the arguments of a command with what makes it small."""
    _, verb, *rest = shlex.split(command.replace("python cli.py", "cl-cnaps"))
    extra = shlex.split(SMALL.get(verb, ""))
    if verb == "ablate" and "queries" in rest:
        extra = shlex.split("--tasks 1 --image-size 32 --sources mnist --workers 0 --quiet")
    return [verb, *rest, *extra]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_data: Path) -> Iterator[None]:
    """A new folder with the files that the pages name."""
    specs = shared_data.parent / "meta_dataset_specs"
    if not specs.is_dir():
        pytest.skip("needs Meta-Dataset's specifications beside the data folder")
    photos = class_folders(
        tmp_path / "photos" / "labelled", {"cat": 12, "dog": 12, "owl": 12, "fox": 12, "cow": 12}
    )
    class_folders(tmp_path / "photos" / "more", {"hen": 4})
    class_folders(tmp_path / "flat", {"new": 3})
    (tmp_path / "flat" / "new").rename(tmp_path / "photos" / "new")
    for name in ("photos.zip", "my-photos.zip"):
        zipped(photos, tmp_path / name)
    (tmp_path / "meta_dataset_specs").symlink_to(specs)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))
    yield


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_runs(page: Path) -> None:
    failed = []
    earlier = [command for other in PAGES[: PAGES.index(page)] for command in commands(other)]
    for command in dict.fromkeys(commands(page)):
        if command in earlier or any(re.search(pattern, command) for pattern in ELSEWHERE):
            continue
        result = CliRunner().invoke(main, small(command))
        if result.exit_code != 0:
            failed.append(
                f"{command}\n    -> {' '.join(small(command))}\n{result.output[-600:]}{result.exception}"
            )
    assert not failed, "\n\n".join(failed)


def test_every_exception_is_needed() -> None:
    every = [command for page in PAGES for command in commands(page)]
    unused = [pattern for pattern in ELSEWHERE if not any(re.search(pattern, one) for one in every)]
    assert not unused
