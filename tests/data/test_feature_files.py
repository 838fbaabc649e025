from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from data.pictures import class_folders
from safetensors.numpy import save_file

from cl_cnaps.data.feature_files import FeatureSource, FeatureTable, given_features, write_features
from cl_cnaps.data.registry import open_path, open_source
from cl_cnaps.data.verify import verify
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.features.frozen import embed_source, merged
from cl_cnaps.models.loading import load_model

CLASSES = ("cat", "dog", "newt")


def arrays(**changes: object) -> dict[str, np.ndarray]:
    """Twelve features, in an order that mixes splits and classes."""
    rng = np.random.default_rng(0)
    found = {
        "features": rng.normal(size=(12, 5)).astype(np.float32),
        "labels": np.arange(12) % 3,
        "splits": np.array(["train", "train", "train", "test", "test", "test"] * 2),
        "class_names": np.array(CLASSES),
    }
    return {name: array for name, array in {**found, **changes}.items() if array is not None}  # type: ignore[misc]


def written(path: Path, **changes: object) -> Path:
    found = arrays(**changes)
    if path.suffix == ".npz":
        np.savez(path, **found)
        return path
    texts = {}
    if "class_names" in found:
        texts["class_names"] = json.dumps(found.pop("class_names").tolist())
    if "splits" in found:
        names, found["splits"] = np.unique(found["splits"], return_inverse=True)
        texts["split_names"] = json.dumps(names.tolist())
    save_file({name: np.ascontiguousarray(array) for name, array in found.items()}, path, texts)
    return path


@pytest.fixture(params=["mine.npz", "mine.safetensors"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_source(file: Path) -> None:
    source = open_source(f"features:{written(file)}", features=True)
    assert source.splits == ("train", "test")
    assert source.classes("test") == CLASSES
    assert source.count("train", "dog") == 2
    rows = source.images("train", "dog", [1, 0], 32)
    np.testing.assert_array_equal(rows.numpy(), arrays()["features"][[7, 1]])
    assert source.where("test", "newt", 1) == f"{file} row 11"
    assert "12 images in 3 classes, 5 wide" in source.origin
    assert verify(source).images == 12
    again = pickle.loads(pickle.dumps(source))
    assert torch.equal(again.images("train", "dog", [1, 0], 32), rows)


def test_forms_agree(tmp_path: Path) -> None:
    digests = {FeatureSource(written(tmp_path / name)).digest() for name in ("a.npz", "b.safetensors")}
    assert len(digests) == 1
    assert FeatureSource(written(tmp_path / "c.npz", labels=np.arange(12) % 2)).digest() not in digests


def test_half_precision(file: Path) -> None:
    half = arrays()["features"].astype(np.float16)
    rows = FeatureSource(written(file, features=half)).images("train", "cat", [0], 1)
    np.testing.assert_array_equal(rows.numpy()[0], half[0].astype(np.float32))


def nan() -> np.ndarray:
    found = arrays()["features"]
    found[7, 2] = np.nan
    return found


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": nan()}, "the features in row 7 are not finite"),
        ({"features": np.full((12, 5), 1e300)}, "row 0 are not finite"),
        ({"features": np.zeros(12, np.float32)}, "expected floats, images x width"),
        ({"features": np.zeros((12, 5), np.int64)}, "features are int64"),
        ({"features": np.zeros((11, 5), np.float32)}, "11 features and labels of shape"),
        ({"features": np.zeros((12, 0), np.float32)}, "0 wide"),
        ({"features": np.zeros((12, 20_000), np.float16)}, "20,000 wide"),
        ({"labels": np.arange(12) % 4}, "label 3 in row 3 is out of range: there are 3 label names"),
        ({"labels": np.arange(12) - 1}, "label -1 in row 0"),
        ({"labels": np.zeros(12)}, "expected 12 integers"),
        ({"splits": None}, "has no array 'splits'"),
        ({"class_names": np.array(["cat", "cat", "newt"])}, "'cat' is there twice"),
        ({"class_names": np.array(["cat", "", "newt"])}, "cannot be the name of a label"),
        ({"class_names": np.array(["cat", "\x1b[31m", "newt"])}, "cannot be the name of a label"),
    ],
)
def test_refused(file: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ClCnapsError) as caught:
        FeatureSource(written(file, **changes))
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz_without_code(tmp_path: Path) -> None:
    file = tmp_path / "code.npz"
    np.savez(file, **arrays(class_names=np.array([object()], dtype=object)))
    with pytest.raises(BadInputError, match=r"not a \.npz file of plain arrays"):
        FeatureSource(file)


def test_npz_that_lies_about_its_size(tmp_path: Path) -> None:
    file = written(tmp_path / "mine.npz")
    with zipfile.ZipFile(file) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["features.npy"] = content["features.npy"].replace(b"(12, 5), }      ", b"(12, 99999999),}")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    with pytest.raises(BadInputError, match="features is not a whole array"):
        FeatureSource(file)


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "text.npz").write_text("no zip")
    (tmp_path / "text.safetensors").write_text("no tensors")
    for name, message in (
        ("folder.npz", "a folder, pipe or device"),
        ("text.npz", "not a .npz file"),
        ("text.safetensors", "not a safetensors file"),
        ("none.npz", "cannot be read"),
        ("mine.csv", "ends in .npz or .safetensors"),
    ):
        with pytest.raises(ClCnapsError, match=message):
            open_source(f"features:{tmp_path / name}", features=True)
    with pytest.raises(MissingDataError):
        FeatureSource(tmp_path / "none.safetensors")


def test_damage_is_found(file: Path) -> None:
    found = arrays()
    metadata = {"backbone": "timm:vit", "backbone_digest": "abc"}
    table = FeatureTable.of(found["features"], found["labels"], found["splits"], CLASSES, metadata)
    write_features(file, table)
    source = FeatureSource(file)
    assert (source.backbone, source.backbone_digest) == ("timm:vit", "abc")
    assert source.digest() == table.digest()
    content = bytearray(file.read_bytes())
    at = content.index(found["features"].tobytes())
    content[at + 40] ^= 1
    if file.suffix == ".npz":  # a damage that the zip's own checksum does not find
        broken = np.frombuffer(bytes(content[at : at + found["features"].nbytes]), np.float32).reshape(12, 5)
        with np.load(file) as old:
            np.savez(file, **{**old, "features": broken})
    else:
        file.write_bytes(content)
    with pytest.raises(BadInputError, match="checksum is wrong"):
        FeatureSource(file)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_changed_while_in_use(file: Path) -> None:
    source = FeatureSource(written(file))
    travelled = pickle.dumps(source)
    written(file, labels=np.arange(12)[::-1] % 3)
    with pytest.raises(BadInputError, match="changed while it was in use"):
        pickle.loads(travelled).images("train", "cat", [0], 1)


def test_embedded_source(tmp_path: Path) -> None:
    folders = {f"{split}/{name}": 3 for split in ("train", "test") for name in ("a", "b")}
    source = open_path(class_folders(tmp_path / "photos", folders))
    model = load_model(adaptation="none", backbone="resnet18", backbone_weights="random", image_size=32).model
    table = embed_source(source, model)
    write_features(tmp_path / "f.npz", table)
    features = FeatureSource(tmp_path / "f.npz")
    assert features.metadata["source_digest"] == source.digest()
    assert features.metadata["image_size"] == 32
    assert (features.backbone, features.backbone_digest) == ("resnet18", model.backbone.digest())
    pixels = source.images("test", "b", [2, 0], 32)
    expected = model.embed_folded(pixels, model.fold(model.adapt(None)))
    torch.testing.assert_close(features.images("test", "b", [2, 0], 32), expected)
    with pytest.raises(BadInputError, match="only stream, evaluate and active"):
        open_source(f"features:{tmp_path / 'f.npz'}")
    with pytest.raises(BadInputError, match="is a feature vector"):
        features.image("test", "b", 0)


def test_sources_together(tmp_path: Path) -> None:
    images = open_path(class_folders(tmp_path / "photos", {"a": 1, "b": 1}))
    five, six = FeatureSource(written(tmp_path / "five.npz")), None
    six = FeatureSource(written(tmp_path / "six.npz", features=np.zeros((12, 6), np.float32)))
    other = FeatureSource(written(tmp_path / "x.npz", metadata=np.array(json.dumps({"backbone": "x"}))))
    assert given_features([images]) is None
    assert given_features([five, five]) is five
    for sources, message in (
        ((five, images), "cannot be mixed"),
        ((five, six), "6 wide"),
        ((five, other), "of x"),
    ):
        with pytest.raises(BadInputError, match=message):
            given_features(sources)


@pytest.mark.parametrize("text", ["\x1b[31m", "\ud800", "", 7, None])
def test_unusable_metadata(tmp_path: Path, text: object) -> None:
    about = np.array(json.dumps({"backbone": text, "pretraining": text}))
    source = FeatureSource(written(tmp_path / "x.npz", metadata=about))
    assert source.backbone == "features"
    assert source.origin.isprintable()


def test_merged_orders() -> None:
    assert merged([["a", "c"], ["a", "b", "c"], ["d"]]) == ["d", "a", "b", "c"]
    assert merged([]) == []
