"""docs/streams.md: its example runs, and it tells of every option and stream there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cl_cnaps.commands.experiments import COMMANDS
from cl_cnaps.continual.fscil import FSCIL
from cl_cnaps.models.weights import describe, shipped_root
from cl_cnaps.names import BENCHMARKS, CNAPS_MODELS

PAGE = (Path(__file__).parents[2] / "docs" / "streams.md").read_text(encoding="utf-8")


def test_the_example_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path))
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/streams.md", "exec"), names)
    accuracies = [value for name, value in names["metrics"].items() if name.startswith("Top1_Acc_Exp/eval")]
    assert len(accuracies) == 5
    assert sum(accuracies) / 5 > 0.7
    assert len(names["strategy"].model.memory.keys) == 10


def test_every_option_is_told_of() -> None:
    told = set(re.findall(r"--[a-z][a-z-]*", PAGE))
    options = {
        name for option in COMMANDS["stream"].params for name in (*option.opts, *option.secondary_opts)
    }
    options = {name for name in options if name.startswith("--")} - {"--help", "--plots", "--download"}
    assert options - told == set()
    assert told - options - {"--help"} == set()


def test_every_stream_and_model_is_told_of() -> None:
    assert [name for name in (*BENCHMARKS, *CNAPS_MODELS) if f"`{name}`" not in PAGE] == []


def test_streams_of_classes_that_the_shipped_weights_saw_are_named() -> None:
    made = describe(shipped_root() / "simple-efficientnet-lite0.safetensors").training
    trained = {name for name, source in made["data"].items() if "train" in source}
    text = " ".join(PAGE.split())
    sentence = text.partition("The shipped weights were meta-trained on classes of")[2].partition(": there")[
        0
    ]
    assert set(re.findall("`(fscil-[a-z0-9-]+)`", sentence)) == {
        name for name, info in FSCIL.items() if info.source in trained
    }
