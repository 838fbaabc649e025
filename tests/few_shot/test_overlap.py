"""Which tested classes an adaptation was trained on is said, however the two were chosen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from few_shot.coloured import coloured_folders

from cl_cnaps.data import open_source
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set, seen_in_training
from cl_cnaps.models.loading import TrainedOn, load_model


def classes_of(folder: Path) -> EvaluationSet:
    return evaluation_set(open_source(f"folder:{folder}"))


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """Six classes in the split train, six others in the split test."""
    root = tmp_path / "photos"
    folders = sorted(coloured_folders(tmp_path / "all", 12, 4).iterdir())
    for number, folder in enumerate(folders):
        place = root / ("train" if number < 6 else "test") / folder.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, place)
    return root


def test_all_classes_include_trained_ones(tmp_path: Path) -> None:
    everything = classes_of(coloured_folders(tmp_path / "photos", 6, 4))
    trained = {"photos": TrainedOn("TRAIN", 4)}
    assert seen_in_training("photos", everything, trained).seen
    assert "4 of its classes" in seen_in_training("photos", everything, trained).words
    assert seen_in_training("others", everything, trained).words == "none"
    assert "no adaptation" in seen_in_training("photos", everything, {}).words
    assert seen_in_training("photos", everything, None).words == "not known"


def test_classes_of_another_split_are_new(divided: Path) -> None:
    tested = classes_of(divided)
    assert tested.held_out
    assert not seen_in_training("photos", tested, {"photos": TrainedOn("train", 6)}).seen
    assert "none of the test" in seen_in_training("photos", tested, {"photos": TrainedOn("train", 6)}).words
    assert seen_in_training("photos", tested, {"photos": TrainedOn("test", 6)}).words.startswith(
        "6 of the test"
    )
    assert seen_in_training("photos", tested, {"photos": TrainedOn("TRAIN", 6)}).words.startswith("not known")


def test_classes_that_were_left_out_of_training_are_new(divided: Path) -> None:
    tested = classes_of(divided)
    names = sorted(folder.name for folder in (divided / "test").iterdir())
    some = seen_in_training("photos", tested, {"photos": TrainedOn("test", 2, frozenset(names[:4]))})
    assert some.words.startswith("2 of the test classes")
    assert not seen_in_training("photos", tested, {"photos": TrainedOn("test", 0, frozenset(names))}).seen


def test_other_images_are_not_new_classes(tmp_path: Path) -> None:
    for split in ("train", "test"):
        coloured_folders(tmp_path / "photos" / split, 6, 4)
    tested = classes_of(tmp_path / "photos")
    assert not tested.held_out
    assert seen_in_training("photos", tested, {"photos": TrainedOn("train", 6)}).words.startswith(
        "6 of the test"
    )


def test_a_set_is_known_by_any_of_its_names(divided: Path) -> None:
    tested = classes_of(divided)
    assert seen_in_training("photos", tested, {f"folder:{divided}": TrainedOn("test", 6)}).seen
    assert seen_in_training("cifar10", tested, {"cifar-10": TrainedOn("test", 6)}).seen
    related = seen_in_training("tiered-imagenet", tested, {"mini-imagenet": TrainedOn("train", 64)})
    assert related.words.startswith("not known; mini-imagenet")


def test_shipped_weights_say_what_they_were_trained_on() -> None:
    adapted, frozen = load_model("simple"), load_model("simple", adaptation="none")
    assert adapted.trained_on is not None
    assert adapted.trained_on["mini-imagenet"].split == "train"
    assert adapted.trained_on["mini-imagenet"].classes == 53
    assert "n02966193" in adapted.trained_on["mini-imagenet"].left_out
    assert adapted.trained_on["cu_birds"].split == "TRAIN"
    assert "mscoco" not in adapted.trained_on
    assert frozen.trained_on == {}
