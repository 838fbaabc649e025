"""Every command and every Python block of README and docs runs, page by page, made small where it would take long.

What cannot run here (a GPU, a cluster, hours) stands below a line `# not run by the tests: REASON` of its block, which
readers see too. Commands that several pages have are run once.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from avalanche.benchmarks import SplitMNIST
from avalanche.benchmarks.datasets.external_datasets import mnist
from click.testing import CliRunner
from continual.small_streams import write_mnist
from data.pictures import class_folders, file_bytes, picture, zipped

from cl_cnaps.active.acquisition import STRATEGIES
from cl_cnaps.commands.main import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN_TEST = ("extending",)  # tests/docs/test_extending.py
MARK = re.compile(r"^# not run by the tests: \S.*$", re.MULTILINE)
MARKED = 12
"""Blocks that are not run, or not to their end. One more needs a reason that is as good as theirs."""

PROGRAMS = ("cl-cnaps ", "python cli.py ")
OF_OTHERS = ("pip install ", "pytest", "mkdocs build", "tensorboard ")  # CI runs them, or they stay open
SMALL = {
    "stream": "--runs 1 --shots 3 --queries 3 --image-size 32 --no-plots --quiet",
    "evaluate": "--tasks 2 --queries 2 --image-size 32 --workers 0 --quiet",
    "active": "--initial 2 --per-round 2 --rounds 1 --runs 1 --pool 4 --test 3 --image-size 32 --workers 0 --quiet",
    "ablate": "--tasks 1 --image-size 32 --sources omniglot --workers 0 --quiet",
    "sweep": "--dry-run",
    "metatrain": "tiny/small.toml --tasks 2",
}
"""Options that make a command of a verb a matter of seconds; they are added at the end, where later ones win."""
SMALLER = {
    r"shots=100\)": "shots=3, queries=3)",
    r"image_size=160": "image_size=32",
    r"ActiveOptions\(": "ActiveOptions(initial=2, per_round=2, rounds=1, runs=1, pool=4, test=3, image_size=32, ",
    r"resume=True\)": "resume=True, workers=0)",
}
"""The same for Python: a pattern -> what is put in its place."""


@dataclass(frozen=True)
class Block:
    """A block of a page, without what is marked."""

    language: str
    text: str
    line: int
    marked: bool


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that are Python or commands."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        run, *rest = MARK.split(match[2], maxsplit=1)
        found.append(Block(match[1], run, text.count("\n", 0, match.start()) + 1, bool(rest)))
    return found


def commands(block: str) -> list[str]:
    """Return the commands of a block, without comments."""
    lines = [re.sub(r"(^|\s)#\s.*", "", line) for line in block.replace("\\\n", " ").splitlines()]
    return [part.strip() for line in lines for part in line.split("&&") if part.strip()]


def small(command: str) -> list[str]:
    """Return the arguments of a command with what makes it small."""
    command = command.replace("--alphabet all", "--alphabet Angelic")  # one of 20
    command = command.replace("omniglot --paper", "omniglot --paper --alphabet Angelic")
    _, verb, *rest = shlex.split(command.replace("python cli.py", "cl-cnaps"))
    extra = SMALL.get(verb, "")
    if (verb, *rest[:1]) == ("ablate", "queries"):
        extra = extra.replace("omniglot", "mnist")
    if any("features:" in word for word in rest):
        extra = extra.replace("--image-size 32", "")
    return [verb, *rest, *shlex.split(extra)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Iterator[Path]:
    """A folder with the files that the pages name."""
    specs = shared_data.parent / "meta_dataset_specs"
    if not specs.is_dir():
        pytest.skip("needs Meta-Dataset's specifications beside the data folder")
    folder = tmp_path_factory.mktemp("desk")
    photos = class_folders(
        folder / "photos" / "labelled", dict.fromkeys(("cat", "dog", "owl", "fox", "cow"), 12)
    )
    class_folders(folder / "photos" / "more", {"hen": 4})
    class_folders(folder / "photos", {"new": 3})
    for number, name in enumerate(("rex.jpg", "bello.jpg")):
        (folder / name).write_bytes(file_bytes(picture(number), "JPEG"))
    for name in ("photos.zip", "mushrooms.zip"):
        zipped(photos, folder / name)
    labels = np.arange(600) % 20
    np.savez(
        folder / "cifar100.npz",
        features=np.random.default_rng(0).normal(size=(600, 8)) + 3 * np.eye(20, 8)[labels],
        labels=labels,
        splits=np.repeat(["train", "test"], 300),
        class_names=[f"class {label}" for label in range(20)],
    )
    class_folders(folder / "data" / "cu_birds", {"001.Black_footed_Albatross": 4, "002.Laysan_Albatross": 4})
    (folder / "tiny").mkdir()
    (folder / "tiny" / "small.toml").write_text(
        'base = "training/small"\ntest_tasks = 2\n[validation]\ntasks = 2\n'
    )
    (folder / "meta_dataset_specs").symlink_to(specs)
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    for part in ("evaluate/mini-imagenet-simple", "evaluate/mini-imagenet-transductive", "ablate/metric"):
        shutil.copytree(ROOT / "results" / part, folder / "results" / part)
    stream = min((ROOT / "results" / "stream" / "split-mnist").iterdir())
    for part in ("results", "runs"):
        shutil.copytree(stream, folder / part / "stream" / "split-mnist" / stream.name)
    write_mnist(folder / "avalanche")
    yield folder


@pytest.fixture
def at_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("CL_CNAPS_CACHE", str(desk / "cache"))
    monkeypatch.setattr(webbrowser, "open", lambda _: True)
    monkeypatch.setattr(mnist, "default_dataset_location", lambda _name: desk / "avalanche")
    with patch.dict(STRATEGIES):
        yield desk


@pytest.fixture(scope="module")
def done() -> set[str]:
    """Commands that ran before."""
    return set()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem not in OWN_TEST], ids=lambda page: page.stem
)
def test_every_block_runs(page: Path, at_desk: Path, done: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    if page.stem == "README":  # shows a loop over any benchmark
        names["benchmark"] = SplitMNIST(n_experiences=5)
    if page.stem == "data":  # converts and packs all that is there
        monkeypatch.setenv("CL_CNAPS_DATA", str(at_desk / "data"))
    failed = []
    for block in blocks(page):
        if block.language == "python":
            source = block.text
            for pattern, instead in SMALLER.items():
                source = re.sub(pattern, instead, source)
            exec(compile("\n" * block.line + source, str(page), "exec"), names)
            continue
        for command in commands(block.text):
            if command in done or not command.startswith(PROGRAMS):
                continue
            result = CliRunner().invoke(main, small(command))
            if result.exit_code != 0:
                failed.append(f"{command}\n    -> {small(command)}\n{result.output[-600:]}{result.exception}")
            done.add(command)
    assert not failed, "\n\n".join(failed)


def test_what_is_not_run_is_marked_and_counted() -> None:
    everywhere = [block for page in PAGES for block in blocks(page)]
    assert sum(block.marked for block in everywhere) == MARKED
    runs = [command for block in everywhere if block.language == "sh" for command in commands(block.text)]
    assert not [one for one in runs if not one.startswith((*PROGRAMS, *OF_OTHERS, "python mine.py "))]
    python = "".join(block.text for block in everywhere if block.language == "python")
    assert all(re.search(pattern, python) for pattern in SMALLER)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_stands_in_blocks_that_name_their_language(page: Path) -> None:
    """Else it would be shown, and not run."""
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^```.*$", text, re.MULTILINE)
    assert set(fences[::2]) <= {f"```{language}" for language in ("python", "sh", "text", "toml")}
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"^\n {4}\S.*", outside, re.MULTILINE)


def test_what_pip_is_to_install_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"pip install \S*\[(\w+)\]", text)) <= set(extras)
    assert all((ROOT / name).is_file() for name in re.findall(r"--constraint (\S+)", text))
