from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from cl_cnaps.commands.main import main

NETWORK = ("--backbone", "resnet18", "--backbone-weights", "random", "--image-size", "32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of six classes, and their features."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(6):
        base = np.random.default_rng(number).integers(0, 256, (8, 8, 3))
        for split, count in (("train", 10), ("test", 8)):
            (root / "photos" / split / f"class{number}").mkdir(parents=True)
            for i in range(count):
                noise = np.random.default_rng((number, i, count)).normal(0, 70, (8, 8, 3))
                image = Image.fromarray(np.clip(base + noise, 0, 255).astype(np.uint8))
                image.save(root / "photos" / split / f"class{number}" / f"{i}.png")
    run("data", "embed", f"folder:{root / 'photos'}", *NETWORK, "--out", str(root / "f.npz"), "--quiet")
    return root


def run(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


SAME = ("final_accuracy", "forgetting", "accuracy", "area", "model", "head", "strategy", "shots", "backbone")


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        (
            "stream",
            ("--model", "simple,transductive,ncm,slda", "--runs", "2", "--shots", "5", "--queries", "5"),
        ),
        ("evaluate", ("--tasks", "4", "--shots", "3", "--queries", "4", "--workers", "0")),
        ("active", ("--rounds", "2", "--runs", "1", "--initial", "1", "--workers", "0")),
    ],
)
def test_same_numbers_as_frozen_features(
    verb: str, options: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    source = {"stream": ("--benchmark",), "evaluate": (), "active": ("--source",)}[verb]
    more = (*options, "--json", "--no-plots", "--out", str(tmp_path))
    frozen = ("--features", "frozen") if verb == "stream" else ("--adaptation", "none")
    images = run(verb, *source, f"folder:{folder / 'photos'}", *NETWORK, *frozen, *more)
    features = run(verb, *source, f"features:{folder / 'f.npz'}", *more)
    assert len(images) == len(features) > 0
    for one, other in zip(images, features, strict=True):
        assert {key: one.get(key) for key in SAME} == {key: other.get(key) for key in SAME}


@pytest.mark.parametrize(
    "options",
    [
        ("--image-size", "32"),
        ("--backbone", "resnet18"),
        ("--backbone-weights", "random"),
        ("--weights", "none"),
        ("--adaptation", "film"),
        ("--modulation", "static"),
        ("--keep-features", "kept"),
        ("--model", "cnaps"),
        ("--model", "fsa-film"),
        ("--model", "slda", "--features", "adapted"),
        ("--model", "ewc", "--baseline-on", "network"),
    ],
)
def test_options_for_images_are_refused(options: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main,
        ["stream", "--benchmark", f"features:{folder / 'f.npz'}", "--out", str(tmp_path / "o"), *options],
    )
    assert result.exit_code != 0
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "o").exists()
