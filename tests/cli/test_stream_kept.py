"""`cl-cnaps stream --keep-features`: embed once, classify in many ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cl_cnaps.commands.main import main
from cl_cnaps.models.cnaps import CnapsModel

SMALL = (
    "--backbone",
    "timm:test_resnet",
    "--backbone-weights",
    "random",
    "--image-size",
    "16",
    "--shots",
    "3",
)
SMALL += ("--queries", "2", "--runs", "1", "--no-plots", "--json")


def stream(out: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["stream", *SMALL, "--out", str(out), *more])


def numbers(result: Result) -> list[Any]:
    assert result.exit_code == 0, result.output
    return [json.loads(line)["final_accuracy"] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("other", [("--model", "protonet"), ("--model", "ncm", "--baseline-on", "features")])
def test_what_shares_features_embeds_nothing_again(
    other: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("--keep-features", str(tmp_path / "features"))
    plain = numbers(stream(tmp_path / "plain", *other))
    numbers(stream(tmp_path / "first", "--adaptation", "none", *kept))

    def refuse(*_: object) -> None:
        raise AssertionError("embedded again")

    monkeypatch.setattr(CnapsModel, "embed_folded", refuse)
    assert numbers(stream(tmp_path / "other", *other, *kept)) == plain


def test_where_nothing_is_embedded_nothing_can_be_kept(tmp_path: Path) -> None:
    more = ("--model", "ewc", "--baseline-on", "network", "--keep-features", str(tmp_path))
    result = stream(tmp_path, *more)
    assert result.exit_code == 1
    assert "--keep-features is for models that embed images; ewc on network does not" in result.output
