from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from data.pictures import class_folders, file_bytes, picture, zipped

from cl_cnaps.data import Source, open_source
from cl_cnaps.data.folders import by_folder, natural
from cl_cnaps.data.trees import DirectoryTree
from cl_cnaps.errors import BadInputError


def table(*names: str, order: tuple[str, ...] = ()) -> dict[str, dict[str, tuple[str, ...]]]:
    return by_folder(names, lambda name: f"<{name}>", order)


def test_plain_class_folders_are_one_split() -> None:
    assert table("cat/2.png", "cat/10.png", "dog/1.JPG") == {
        "all": {"cat": ("cat/2.png", "cat/10.png"), "dog": ("dog/1.JPG",)}
    }


def test_split_folders() -> None:
    found = table("set/Testing/a/1.png", "set/valid/a/1.png", "set/train/b/1.png")
    assert list(found) == ["train", "val", "test"]
    assert found["val"] == {"a": ("set/valid/a/1.png",)}


def test_outer_folders() -> None:
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


def test_order_of_classes() -> None:
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
def test_image_outside_any_class(stray: str) -> None:
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "animals", {"train/cat": 3, "train/dog": 2, "test/cat": 1})


def test_images_come_as_asked_for(folder: Path) -> None:
    source = open_source(f"folder:{folder}")
    assert isinstance(source, Source)
    assert (source.name, source.splits, source.classes("train")) == (
        "animals",
        ("train", "test"),
        ("cat", "dog"),
    )
    assert [source.count("train", c) for c in source.classes("train")] == [3, 2]
    images = source.images("train", "cat", [2, 0, 2], 16)
    assert images.shape == (3, 3, 16, 16)
    assert images.dtype == torch.uint8
    assert torch.equal(images[0], images[2])
    assert not torch.equal(images[0], images[1])
    assert torch.equal(images[1:2], source.images("train", "cat", [0], 16))
    assert source.images("train", "cat", [], 16).shape == (0, 3, 16, 16)
    assert source.origin == f"{folder}: 6 images in 2 classes"
    assert source.complete is None


def test_what_is_not_there_is_named(folder: Path) -> None:
    source = open_source(f"folder:{folder}")
    with pytest.raises(BadInputError, match="no split 'val'; it has train, test"):
        source.classes("val")
    with pytest.raises(
        BadInputError, match="no class 'cow' in split 'train'; its 2 classes there are cat, dog"
    ):
        source.images("train", "cow", [0], 8)
    with pytest.raises(
        BadInputError, match="'dog' of animals has 2 images in split 'train'; there is no image number 2"
    ):
        source.images("train", "dog", [0, 2], 8)
    with pytest.raises(BadInputError, match="image number -1"):
        source.images("train", "dog", [-1], 8)
    with pytest.raises(BadInputError, match="0 x 0"):
        source.images("train", "dog", [0], 0)


def test_a_folder_its_copy_and_its_zip_have_one_digest(folder: Path, tmp_path: Path) -> None:
    archive = zipped(folder, tmp_path / "other-name.zip", prefix="outer/")
    (tmp_path / "copies").mkdir()
    copy = class_folders(tmp_path / "copies" / "x", {"train/cat": 3, "train/dog": 2, "test/cat": 1})
    digests = {open_source(f"folder:{path}").digest() for path in (folder, archive, copy)}
    assert len(digests) == 1
    zipped_source = open_source(f"folder:{archive}")
    assert torch.equal(
        zipped_source.images("train", "dog", [1], 12),
        open_source(f"folder:{folder}").images("train", "dog", [1], 12),
    )
    assert pickle.loads(pickle.dumps(zipped_source)).digest() in digests


def test_digest_follows_content(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_source(f"folder:{folder}").digest()
    file = folder / "train" / "cat" / "0.png"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1  # same size, other content
    file.write_bytes(data)
    os.utime(file, ns=(1, 1))
    after = open_source(f"folder:{folder}").digest()
    assert after != before

    def read(self: DirectoryTree, name: str) -> bytes:
        raise AssertionError(f"{name} was read again")

    monkeypatch.setattr(DirectoryTree, "read", read)
    assert open_source(f"folder:{folder}").digest() == after


def test_encoded_files(tmp_path: Path) -> None:
    (tmp_path / "set" / "a").mkdir(parents=True)
    jpeg, bmp = file_bytes(picture(1), "JPEG"), file_bytes(picture(2), "BMP")
    (tmp_path / "set" / "a" / "1.jpg").write_bytes(jpeg)
    (tmp_path / "set" / "a" / "2.bmp").write_bytes(bmp)
    source = open_source(f"folder:{tmp_path / 'set'}")
    assert source.encoded("all", "a", 0) == jpeg
    assert source.encoded("all", "a", 1) == file_bytes(picture(2), "PNG")


def test_a_folder_without_images_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "notes.txt").write_text("x")
    with pytest.raises(BadInputError, match=r"no images in it \(1 other files\); expected <class>/<image>"):
        open_source(f"folder:{tmp_path / 'set'}")
