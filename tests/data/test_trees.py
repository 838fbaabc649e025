from __future__ import annotations

import multiprocessing
import pickle
import zipfile
from pathlib import Path

import pytest
from data.pictures import class_folders, zipped

from cl_cnaps.data import trees
from cl_cnaps.data.trees import Tree, ZipTree, open_tree
from cl_cnaps.errors import BadInputError, MissingDataError


@pytest.fixture
def both(tmp_path: Path) -> tuple[Tree, Tree]:
    folder = class_folders(tmp_path / "set", {"cat": 3, "dog/brown": 2})
    return open_tree(folder), open_tree(zipped(folder, tmp_path / "set.zip"))


def test_a_folder_and_its_zip_answer_alike(both: tuple[Tree, Tree]) -> None:
    folder, archive = both
    names = sorted(folder.names())
    assert names == sorted(archive.names())
    assert "dog/brown/1.png" in names
    assert [folder.read(name) for name in names] == [archive.read(name) for name in names]
    assert folder.checksums(names) == archive.checksums(names)
    assert folder.head(names[0], 8) == archive.head(names[0], 8) == b"\x89PNG\r\n\x1a\n"


def test_missing_files_and_other_files_are_named(both: tuple[Tree, Tree], tmp_path: Path) -> None:
    for tree in both:
        with pytest.raises(MissingDataError, match=r"cat/9\.png"):
            tree.read("cat/9.png")
    with pytest.raises(MissingDataError, match="nowhere does not exist"):
        open_tree(tmp_path / "nowhere")
    (tmp_path / "text").write_text("no zip")
    with pytest.raises(BadInputError, match="neither a folder nor a readable zip"):
        open_tree(tmp_path / "text")


def test_a_zip_is_used_from_forked_processes_at_once(both: tuple[Tree, Tree]) -> None:
    folder, archive = both
    names = sorted(archive.names()) * 40
    expected = [folder.read(name) for name in names]
    assert archive.read(names[0])  # the handle is open when the processes are forked
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(archive.read, names, chunksize=5) == expected
    assert pickle.loads(pickle.dumps(archive)).read(names[0]) == expected[0]


def test_a_damaged_entry_is_named_and_never_returned(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 1})
    file = tmp_path / "set.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.write(folder / "cat" / "0.png", "cat/0.png")
    content = bytearray(file.read_bytes())
    content[content.index(b"IDAT") + 8] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadInputError, match=r"set\.zip:cat/0\.png: cannot be read"):
        open_tree(file).read("cat/0.png")


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cat/0.png", bytes(10**6))
    tree = ZipTree(tmp_path / "bomb.zip")
    assert len(tree.read("cat/0.png")) == 10**6  # small enough to be harmless
    monkeypatch.setattr(trees, "SUSPICIOUS_BYTES", 10**5)
    with pytest.raises(BadInputError, match="to 1,000,000 bytes: refused as a zip bomb"):
        tree.read("cat/0.png")


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    class_folders(tmp_path / "elsewhere", {"cow": 1})
    folder = class_folders(tmp_path / "set", {"cat": 1})
    (folder / "cow").symlink_to(tmp_path / "elsewhere" / "cow")
    (folder / "cat" / "again").symlink_to(folder)
    assert sorted(open_tree(folder).names()) == ["cat/0.png", "cow/0.png"]


def test_a_name_that_a_zip_has_twice_counts_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("cat/0.png", b"old")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("cat/0.png", b"new")
    tree = open_tree(tmp_path / "x.zip")
    assert (tree.names(), tree.read("cat/0.png")) == (["cat/0.png"], b"new")
