from __future__ import annotations

import pytest

from cl_cnaps.data.layout import by_folder, natural
from cl_cnaps.errors import BadInputError


def table(*names: str, order: tuple[str, ...] = ()) -> dict[str, dict[str, tuple[str, ...]]]:
    return by_folder(names, lambda name: f"<{name}>", order)


def test_plain_class_folders_are_one_split() -> None:
    assert table("cat/2.png", "cat/10.png", "dog/1.JPG") == {
        "all": {"cat": ("cat/2.png", "cat/10.png"), "dog": ("dog/1.JPG",)}
    }


def test_split_folders_are_splits_in_the_usual_order_whatever_they_are_called() -> None:
    found = table("set/Testing/a/1.png", "set/valid/a/1.png", "set/train/b/1.png")
    assert list(found) == ["train", "val", "test"]
    assert found["val"] == {"a": ("set/valid/a/1.png",)}


def test_outer_folders_are_passed_over_but_never_a_class_or_a_split() -> None:
    assert list(table("x/y/cat/1.png", "x/y/dog/1.png")["all"]) == ["cat", "dog"]
    assert list(table("x/only/1.png")["all"]) == ["only"]
    assert list(table("only/1.png")["all"]) == ["only"]
    assert table("x/train/cat/1.png") == {"train": {"cat": ("x/train/cat/1.png",)}}


def test_omniglot_classes_carry_alphabet_and_character() -> None:
    found = table(
        "o/images_background/Greek/character02/1.png", "o/images_evaluation/Tengwar/character01/1.png"
    )
    assert {split: list(classes) for split, classes in found.items()} == {
        "background": ["Greek/character02"],
        "evaluation": ["Tengwar/character01"],
    }


def test_a_class_called_train_beside_others_is_a_class() -> None:
    assert list(table("train/1.png", "plane/1.png")["all"]) == ["plane", "train"]


def test_classes_come_in_natural_order_or_in_the_official_one() -> None:
    names = ("10/a.png", "9/a.png", "1/a.png")
    assert list(table(*names)["all"]) == ["1", "9", "10"]
    spelled = ("zebra/1.png", "T-shirt_top/1.png", "ankle boot/1.png", "trouser/1.png")
    official = ("T-shirt/top", "Trouser", "Ankle boot")
    assert list(table(*spelled, order=official)["all"]) == ["T-shirt_top", "trouser", "ankle boot", "zebra"]


def test_what_is_not_an_image_or_hidden_is_ignored() -> None:
    names = ("cat/1.png", "cat/notes.txt", "README.md", "cat/.1.png", "__MACOSX/cat/._1.png", ".git/x/1.png")
    assert table(*names) == {"all": {"cat": ("cat/1.png",)}}
    assert table("cat/notes.txt") == {}


@pytest.mark.parametrize("stray", ["1.png", "train/1.png"])
def test_an_image_outside_any_class_is_an_error_that_names_it(stray: str) -> None:
    with pytest.raises(BadInputError, match=f"<{stray}> lies outside any class folder"):
        table("train/cat/1.png", "test/cat/1.png", stray)


def test_natural_order_puts_2_before_10_and_is_total() -> None:
    assert sorted(["b10", "b2", "a", "b", "10", "02", "2"], key=natural) == [
        "02",
        "2",
        "10",
        "a",
        "b",
        "b2",
        "b10",
    ]
