"""cl-cnaps weights: list, show, import; then the imported weights are used."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from models.released_names import made_up_checkpoint

from cl_cnaps import FewShotClassifier
from cl_cnaps.commands.main import main
from cl_cnaps.models.weights import list_weights, load_weights
from cl_cnaps.paths import weights_root


def run(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["weights", *map(str, arguments)])
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("authors") / "best_simple.pt"
    torch.save(made_up_checkpoint("simple"), path)
    return path


def test_import_list_show(checkpoint: Path) -> None:
    assert "best_simple" not in run("list").output
    said = run("import", checkpoint, "--name", "authors").output
    assert "simple on resnet18, 19,771,008 parameters" in said
    assert said.strip().endswith(f"weights:  {weights_root() / 'authors.safetensors'}")
    line = next(line for line in run("list").output.splitlines() if line.startswith("authors "))
    assert "resnet18" in line
    assert "imported from best_simple.pt" in line
    facts = json.loads(run("show", "authors", "--json").output)
    assert facts["training"] == {"imported_from": "best_simple.pt"}
    assert facts["config"]["normaliser"] == "released"
    assert facts["backbone_weights"] == "best_simple.pt"
    assert len(facts["digest"]) == 16
    shown = run("show", "authors").output
    assert "imported_from: best_simple.pt" in shown
    assert f"digest: {facts['digest']}" in shown
    listed = [json.loads(line) for line in run("list", "--json").output.splitlines()]
    assert [entry for entry in listed if entry["name"] == "authors"] == [facts]
    assert run("show", weights_root() / "authors.safetensors", "--json").output.strip() == json.dumps(facts)


def test_import_to_a_file_with_batch_statistics(checkpoint: Path, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "mine.safetensors"
    run("import", checkpoint, "--out", target, "--batch-statistics", "--model", "simple")
    model, _ = load_weights(target)
    assert model.config.encoder.batch_statistics
    assert not [file for file in list_weights() if file.name == "mine"]


def test_requests_that_cannot_be_met(checkpoint: Path, tmp_path: Path) -> None:
    assert "no weights called 'nothing'" in run("show", "nothing", status=1).output
    wrong = run("import", checkpoint, "--model", "cnaps", status=1).output
    assert wrong.strip() == "Error: best_simple.pt is a checkpoint of simple, not of cnaps"
    assert "does not exist" in run("import", tmp_path / "absent.pt", status=2).output
    assert ".safetensors" in run("import", checkpoint, "--out", tmp_path / "x.pt", status=2).output
    assert (
        "give one of them"
        in run("import", checkpoint, "--out", tmp_path / "x.safetensors", "--name", "x", status=2).output
    )
    for name in ("../x", "a/b", "", ".hidden"):
        assert "--name" in run("import", checkpoint, "--name", name, status=2).output
    (tmp_path / "text.pt").write_text("not a checkpoint")
    assert (
        "text.pt: not a checkpoint of plain tensors" in run("import", tmp_path / "text.pt", status=1).output
    )
    assert not weights_root().exists()


def test_an_empty_list_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cl_cnaps.models.weights.shipped_root", lambda: tmp_path / "nothing")
    output = run("list").output
    assert "cl-cnaps weights import" in output
    assert str(weights_root()) in output
    assert run("list", "--json").output == ""


def test_as_a_program_and_from_there_into_a_classifier(checkpoint: Path, tmp_path: Path) -> None:
    """The whole way: the installed command takes a checkpoint in, then five lines of Python use it."""
    from PIL import Image

    for name, colour in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
        for number in range(2):
            file = tmp_path / "labelled" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 20), tuple(c + 9 * number for c in colour)).save(file)
    command = [
        Path(sysconfig.get_path("scripts")) / "cl-cnaps",
        "weights",
        "import",
        checkpoint,
        "--name",
        "authors",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "authors.safetensors" in done.stdout
    classifier = FewShotClassifier.learn(tmp_path / "labelled", weights="authors")
    assert classifier.loaded_.weights_source.startswith("authors.safetensors")
    labels = classifier.predict(tmp_path / "labelled").tolist()
    assert labels == ["blue", "blue", "red", "red"]


def test_show_leaves_out_the_numbers_of_encodings() -> None:
    file = next(file for file in list_weights() if file.name == "simple-efficientnet-lite0")
    sources = file.training["encodings"]
    assert all(len(numbers) == 64 for numbers in sources.values())
    shown = json.loads(run("show", file.name, "--json").output)["training"]["encodings"]
    assert shown == f"mean task encodings of {', '.join(sorted(sources))}"
    numbers = [str(number) for number in next(iter(sources.values()))]
    assert not any(number in run("show", file.name).output for number in numbers[:3])
