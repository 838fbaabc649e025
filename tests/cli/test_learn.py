"""`cl-cnaps learn` and `cl-cnaps predict`, with real handwritten digits."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from package.digits import save_digits
from PIL import Image

from cl_cnaps import FewShotClassifier
from cl_cnaps.commands.main import main
from cl_cnaps.models.weights import shipped_root

SMALL = ("--image-size", "48", "--device", "cpu")


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("digits")
    for digit in (0, 1):
        save_digits(digit, 4, 3, root / "labelled", root / "new")
    save_digits(7, 4, 3, root / "more", root / "newer")
    result = run("learn", root / "labelled", "--out", root / "pets.safetensors", *SMALL)
    assert result.exit_code == 0, result.output
    assert "0  4 images\n1  4 images\n" in result.stdout
    assert f"written:  {root / 'pets.safetensors'}" in result.stdout
    return root


def test_a_table_and_a_contact_sheet(folder: Path, tmp_path: Path) -> None:
    result = run("predict", folder / "pets.safetensors", folder / "new", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len([line for line in lines if line.endswith((" 0", " 1")) and "%" in line]) == 6
    certain = [int(line.split("%")[0].split()[-1]) for line in lines[:6]]
    assert certain == sorted(certain)
    with Image.open(tmp_path / "out" / "contact-sheet.png") as sheet:
        assert sheet.width > 6 * 120
        assert len(sheet.convert("L").getcolors() or []) > 50
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "predictions.csv").read_text())))
    assert [row["image"] for row in rows] == sorted(file.name for file in (folder / "new").iterdir())


def test_the_same_as_json_and_csv(folder: Path, tmp_path: Path) -> None:
    words = ("predict", folder / "pets.safetensors", folder / "new", "--out", tmp_path)
    objects = [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]
    rows = list(csv.DictReader(io.StringIO(run(*words, "--csv").stdout)))
    assert len(objects) == len(rows) == 6
    for one, row in zip(objects, rows, strict=True):
        assert (one["image"], one["label"]) == (row["image"], row["label"])
        assert float(row[one["label"]]) == one["probability"] == max(one["probabilities"].values())
    assert run(*words, "--json", "--csv").exit_code == 2


def test_files_that_cannot_be_read_are_named_and_the_others_answered(folder: Path, tmp_path: Path) -> None:
    images = shutil.copytree(folder / "new", tmp_path / "images")
    (images / "broken.png").write_text("no image")
    result = run("predict", folder / "pets.safetensors", images, "--out", tmp_path / "out", "--json")
    assert len(result.stdout.splitlines()) == 6
    assert result.exit_code == 1
    assert "broken.png" in result.stderr
    assert "no answer for what cannot be read" in result.stderr
    result = run("predict", folder / "pets.safetensors", images / "broken.png", "--out", tmp_path / "none")
    assert result.exit_code == 1
    assert not (tmp_path / "none" / "predictions.csv").exists()


def test_weights_of_ones_own_are_named_by_what_is_printed(folder: Path, tmp_path: Path) -> None:
    own = shutil.copy(shipped_root() / "simple-efficientnet-lite0.safetensors", tmp_path / "own.safetensors")
    words = ("learn", folder / "labelled", "--out", tmp_path / "c.safetensors", "--weights", own, *SMALL)
    hint = f"Use it with: cl-cnaps predict {tmp_path / 'c.safetensors'} FOLDER --weights {own}"
    assert hint in run(*words).stdout


def test_classes_are_added_without_the_old_images(folder: Path, tmp_path: Path) -> None:
    result = run(
        "learn", folder / "more", "--add", folder / "pets.safetensors", "--out", tmp_path / "three.safetensors",
        "--device", "cpu", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["classes"] == {"0": 4, "1": 4, "7": 4}
    answers = run(
        "predict", tmp_path / "three.safetensors", folder / "newer", "--out", tmp_path, "--json"
    ).stdout
    assert [json.loads(line)["label"] for line in answers.splitlines()].count("7") >= 2
    again = run(
        "learn",
        folder / "more",
        "--add",
        folder / "pets.safetensors",
        "--out",
        tmp_path / "x.safetensors",
        *SMALL,
    )
    assert again.exit_code == 2
    assert "--image-size was chosen when" in again.output


def test_the_covariance_can_be_chosen(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "paper.safetensors"
    result = run("learn", folder / "labelled", "--covariance", "task", "--out", out, *SMALL)
    assert result.exit_code == 0, result.output
    assert FewShotClassifier.load(out).covariance == "task"
    assert FewShotClassifier.load(folder / "pets.safetensors").covariance == "seen"


def test_unknown_images_and_moving(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "new", tmp_path / "new")
    Image.radial_gradient("L").save(tmp_path / "new" / "thing.png")
    words = (
        "predict",
        folder / "pets.safetensors",
        tmp_path / "new",
        "--out",
        tmp_path / "out",
        "--unknown",
        "0.95",
    )
    result = run(*words, "--move-into", tmp_path / "sorted")
    assert result.exit_code == 0, result.output
    assert "Moved: 7 files" in result.stdout
    assert "thing.png  unknown, like " in result.stdout
    assert (tmp_path / "sorted" / "unknown" / "thing.png").is_file()
    assert not list((tmp_path / "new").iterdir())
    assert {path.parent.name for path in (tmp_path / "sorted").rglob("*.png")} <= {"0", "1", "unknown"}
    shutil.copytree(folder / "new", tmp_path / "again" / "new")
    again = (*words[:2], tmp_path / "again" / "new", *words[3:], "--move-into", tmp_path / "sorted")
    result = run(*again)
    assert "nothing was moved" in result.output
    assert len(list((tmp_path / "again" / "new").iterdir())) == 6


def test_errors_are_one_line(folder: Path, tmp_path: Path) -> None:
    for words, said in (
        (("learn", tmp_path / "absent", "--out", tmp_path / "x.safetensors"), "absent does not exist"),
        (("learn", folder / "labelled", "--out", tmp_path / "x.pt"), "does not end in .safetensors"),
        (("predict", tmp_path / "x.safetensors", folder / "new"), "there is no classifier"),
        (("predict", folder / "pets.safetensors", tmp_path), "holds no images"),
        (("predict", folder / "pets.safetensors", folder / "new", "--unknown", "95"), "--unknown"),
    ):
        result = run(*words)
        assert result.exit_code != 0
        assert said in result.output
        assert "Traceback" not in result.output
