"""docs/extending.md: each of its files really adds what it says, and each of its commands runs with it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from data.pictures import class_folders, zipped
from safetensors.torch import save_file

from cl_cnaps.active.acquisition import STRATEGIES
from cl_cnaps.commands.main import main
from cl_cnaps.continual.baselines import baseline, registry
from cl_cnaps.continual.encodings import ENCODINGS, StreamEncoding
from cl_cnaps.data.registry import OPENERS
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import MEANS_ALONE, RULES
from cl_cnaps.models import backbones

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")

SMALL = {
    "stream": "--shots 3 --queries 3 --runs 1 --no-plots --json",
    "evaluate": "--tasks 2 --queries 2 --workers 0 --json",
    "active": "--initial 2 --per-round 2 --rounds 2 --runs 1 --pool 4 --test 3 --adaptation none "
    "--workers 0 --no-plots --json",
    "weights": "--json",
    "data": "",
}
"""What makes a command of the page a matter of a second; later options win."""


@dataclass(frozen=True)
class Section:
    """A heading's Python files and the commands below it."""

    files: list[str]
    commands: list[str]


def section(title: str) -> Section:
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    files = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return Section(files, [line for block in blocks for line in block.splitlines()])


@pytest.fixture(autouse=True)
def registries_as_they_were() -> Iterator[None]:
    tables: list[dict[str, Any]] = [
        registry._ALL,
        registry.OWN,
        STRATEGIES,
        ENCODINGS,
        OPENERS,
        RULES,
        backbones._OWN,
    ]
    before, means_alone = [dict(table) for table in tables], set(MEANS_ALONE)
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
    MEANS_ALONE.intersection_update(means_alone)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))


def load(file: str) -> None:
    """What importing mine.py does; `main()` is left to `run`."""
    assert file.endswith('if __name__ == "__main__":\n    main()\n')
    names: dict[str, Any] = {"__name__": "mine"}
    exec(compile(file, "mine.py", "exec"), names)
    assert names["main"] is main


def run(command: str) -> list[dict[str, Any]]:
    """What a command of the page prints, as `mine.py` runs it, made small."""
    said = shlex.split(re.sub(r"^(cl-cnaps|python mine\.py) ", "", command))
    result = CliRunner().invoke(main, [*said, *shlex.split(SMALL[said[0]])])
    assert result.exit_code == 0, f"{command}: {result.output}"
    return [json.loads(line) for line in result.stdout.splitlines()] if said[0] != "data" else []


def refused(command: str) -> str:
    result = CliRunner().invoke(main, shlex.split(command))
    assert result.exit_code != 0
    return " ".join(result.output.split())


def test_every_section_is_tested_here() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE) == [
        "A backbone",
        "A task encoding",
        "A metric",
        "A rival",
        "An acquisition function",
        "A data set",
    ]


def test_a_backbone() -> None:
    import timm  # after cl_cnaps, which mends torchvision's import

    page = section("A backbone")
    network = timm.create_model("mobilenetv3_small_050", pretrained=False)
    save_file(network.state_dict(), "mobilenet.safetensors")
    shown, of_timm, of_ours = page.commands
    (facts,) = run(shown)
    assert facts["modulated"]["layer_norm"]["layers"] == 13
    (single, _) = run(of_timm)
    assert (single["backbone"], single["backbone_pretraining"]) == (
        "timm:mobilenetv3_small_050",
        "as mobilenet.safetensors was trained",
    )
    assert (
        "unknown backbone 'tiny': efficientnet-lite0, efficientnet-lite1, efficientnet-lite2, resnet18, or"
        in refused("stream --backbone tiny")
    )
    (file,) = page.files
    load(file)
    (single, _) = run(of_ours)
    assert (single["backbone"], single["backbone_pretraining"]) == ("tiny", "none")


def test_a_task_encoding() -> None:
    page = section("A task encoding")
    (file,), (command,) = page.files, page.commands
    assert "'fading' is not one of 'moving', 'first'" in refused("stream --encoding fading")
    load(file)
    zeros, ones = torch.zeros(64), torch.ones(64)
    torch.testing.assert_close(StreamEncoding("fading").observe(zeros).observe(ones).value, 0.1 * ones)
    # The adaptation is untrained, and this generator's is not the identity: the encoding decides the features.
    slight = "--backbone resnet18 --weights none --image-size 32"
    fading, moving = (run(f"{said} {slight}") for said in (command, command.replace("fading", "moving")))
    assert [row["encoding"] for row in fading] == ["fading", "fading"]
    assert [row["encoding"] for row in moving] == ["moving", "moving"]
    assert fading[0]["record"] != moving[0]["record"]


def test_a_metric() -> None:
    page = section("A metric")
    (file,), (stream, evaluate) = page.files, page.commands
    assert "'chebyshev' is not one of 'mahalanobis', " in refused("evaluate mnist --metric chebyshev")
    load(file)
    slight = "--image-size 32 --adaptation none"
    ours, cosine = (run(f"{stream} {slight} --metric {name}")[0] for name in ("chebyshev", "cosine"))
    assert (ours["metric"], cosine["metric"]) == ("chebyshev", "cosine")
    assert ours["final_accuracy"]["mean"] > 0.1, "better than any guess"
    assert ours["memory_bytes"] == cosine["memory_bytes"], "means alone"
    assert {row["metric"] for row in run(f"{evaluate} {slight} --ways 5 --shots 1")} == {"chebyshev"}


def test_a_rival() -> None:
    page = section("A rival")
    (file,), (command,) = page.files, page.commands
    assert "nearest-median" in refused("stream --model nearest-median")
    load(file)
    rows = run(f"{command} --image-size 32 --head single")
    assert [row["model"] for row in rows] == ["simple", "nearest-median"]
    assert rows[1]["final_accuracy"]["mean"] > 0.1, "better than any guess"
    assert rows[1]["memory_bytes"] == 10 * 1280 * 4
    with pytest.raises(BadInputError, match="there is a model called 'ranpac' already"):
        baseline("ranpac")(dict.fromkeys)


def test_a_rival_whose_scores_do_not_fit() -> None:
    @baseline("broken")
    class Broken:
        def __init__(self, seed: int) -> None: ...

        def learn(self, features: torch.Tensor, columns: torch.Tensor) -> None: ...

        def scores(self, features: torch.Tensor) -> torch.Tensor:
            return torch.zeros(len(features), 1)

    small = "stream --model broken --shots 3 --queries 3 --runs 1 --image-size 32"
    assert "the baseline 'broken' must return finite scores of shape (6, 2), not (6, 1)" in refused(small)


def test_an_acquisition_function() -> None:
    page = section("An acquisition function")
    (file,), (command,) = page.files, page.commands
    load(file)
    assert [row["strategy"] for row in run(f"{command} --image-size 32")] == ["random", "margin"]


def test_a_data_set_in_folders(tmp_path: Path) -> None:
    zipped(class_folders(tmp_path / "photos", {"edible": 8, "not": 8}), tmp_path / "mushrooms.zip")
    commands = [line for line in section("A data set").commands if line.startswith("cl-cnaps")]
    slight = " --image-size 32 --adaptation none"
    stream, added, evaluate = (run(line + ("" if " data " in line else slight)) for line in commands)
    assert [row["benchmark"] for row in stream] == ["folder:mushrooms.zip"] * 2
    assert added == []
    assert [(row["data_set"], row["shots"]) for row in evaluate] == [("mushrooms", 1), ("mushrooms", 2)]


def test_a_data_set_from_code() -> None:
    page = section("A data set")
    (file,) = page.files
    assert "no data set called 'small-digits'" in refused("stream --benchmark small-digits")
    load(file)
    commands = [line for line in page.commands if line.startswith("python mine.py")]
    slight = " --image-size 32 --adaptation none"
    for line in commands:
        for row in run(line + slight):
            assert "8 x 8 digits of scikit-learn" in row["data_source"]
