"""Specifications, records, arrays and registers that are damaged: read, or refused by name."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from data.pictures import class_folders, file_bytes, picture
from data.specs import FLAT, GRAPH, GROUPED
from faults.damage import hunt

from cl_cnaps.continual.fscil import FSCIL, read_sessions
from cl_cnaps.data import open_source
from cl_cnaps.data.feature_files import FeatureSource, FeatureTable, write_features
from cl_cnaps.data.records import encode_example, write_records
from cl_cnaps.data.registry import listing, register, registered
from cl_cnaps.data.spec import read_spec
from cl_cnaps.data.verify import verify
from cl_cnaps.errors import BadInputError, ClCnapsError


def open_or_refuse(name: str, root: Path, mention: str) -> None:
    try:
        source = open_source(name, root=root)
        source.digest()
        bad = verify(source).bad
    except ClCnapsError as error:
        bad = (str(error),)
    for line in bad:
        assert mention in line and "\n" not in line, line


def test_image_lists_of_few_shot_benchmarks(tmp_path: Path) -> None:
    info = FSCIL["fscil-cub"]
    lists = [tmp_path / f"session_{number}.txt" for number in range(2, 2 + info.sessions)]
    for file in lists:
        file.write_text(f"{'9' * 6000}\n" * info.ways * info.shots)  # `int` takes 4,300 digits
    assert len(read_sessions(tmp_path, info)) == info.sessions
    for content in (b"\xff", b"\0" * 100):
        lists[0].write_bytes(content)
        with pytest.raises(ClCnapsError, match=r"session_2\.txt"):
            read_sessions(tmp_path, info)
    lists[0].unlink()
    os.mkfifo(lists[0])  # which nobody writes to
    with pytest.raises(BadInputError, match=r"session_2\.txt is a folder, pipe or device"):
        read_sessions(tmp_path, info)


@pytest.mark.parametrize("spec", [FLAT, GROUPED, GRAPH], ids=["flat", "grouped", "graph"])
def test_specifications(tmp_path: Path, spec: dict[str, object]) -> None:
    file = tmp_path / "dataset_spec.json"

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            read_spec(file)
        except ClCnapsError as error:
            assert str(file) in str(error) and "\n" not in str(error)

    hunt("spec", json.dumps(spec).encode(), check)


def test_deep_and_endless_specifications(tmp_path: Path) -> None:
    for content in ("[" * 100_000, '{"a":' * 100_000, f'{{"name": {"9" * 6000}}}', '"\\ud800"', "\ufeff{}"):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(ClCnapsError, match=r"x\.json"):
            read_spec(tmp_path / "x.json")


def test_specification_of_endless_classes(tmp_path: Path) -> None:
    spec = {**FLAT, "classes_per_split": {"TRAIN": 10**18, "VALID": 0, "TEST": 1}}
    (tmp_path / "x.json").write_text(json.dumps(spec))
    with pytest.raises(ClCnapsError, match=r"lacks some of the ids 0\.\.1000000000000000000, the first: 4"):
        read_spec(tmp_path / "x.json")


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_feature_files(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"x.{suffix}"
    features = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    splits = np.array(["train", "test"] * 3)
    table = FeatureTable.of(features, np.arange(6) % 2, splits, ("a", "b"), {"backbone": "x"})
    write_features(file, table)

    def check(content: bytes) -> None:
        file.write_bytes(content)
        try:
            found = FeatureSource(file)
        except ClCnapsError as error:
            assert str(file) in str(error) and "\n" not in str(error)
        else:  # the checksum covers all that is read
            assert found.digest() == table.digest() or "checksum" not in found.metadata

    hunt(suffix, file.read_bytes(), check, budget=600)


def test_records(tmp_path: Path) -> None:
    images = [encode_example(file_bytes(picture(number)), 0) for number in range(3)]
    spec = {
        **FLAT,
        "classes_per_split": {"TRAIN": 1, "VALID": 0, "TEST": 0},
        "images_per_class": {"0": 3},
        "class_names": {"0": "cat"},
    }
    (tmp_path / "dataset_spec.json").write_text(json.dumps(spec))
    file = tmp_path / "0.tfrecords"
    write_records(file, images)

    def check(content: bytes) -> None:
        file.write_bytes(content)
        open_or_refuse(f"records:{tmp_path}", tmp_path, str(tmp_path))

    hunt("record", file.read_bytes(), check)


def test_examples_whose_checksums_are_right(tmp_path: Path) -> None:
    from cl_cnaps.data.records import decode_example

    def check(content: bytes) -> None:
        try:
            decode_example(content, "x.tfrecords")
        except ClCnapsError as error:
            assert "x.tfrecords" in str(error)

    hunt("example", encode_example(file_bytes(picture(1)), 300), check, budget=1000)


@pytest.mark.parametrize("zipped", [False, True])
def test_bitmaps(tmp_path: Path, zipped: bool) -> None:
    import zipfile

    (tmp_path / "set").mkdir()
    file = tmp_path / "set" / "cat.npy"
    np.save(file, np.zeros((3, 784), np.uint8))

    def check(content: bytes) -> None:
        file.write_bytes(content)
        if zipped:
            with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
                archive.writestr("cat.npy", content)
        open_or_refuse(f"folder:{tmp_path / ('x.zip' if zipped else 'set')}", tmp_path, str(tmp_path))

    hunt("bitmap", file.read_bytes(), check, budget=200)


def test_mnist_files(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (5, 28, 28)) + bytes(5 * 784)
    labels = b"\0\0\x08\x01" + (5).to_bytes(4, "big") + bytes(range(5))
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(images)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    assert open_source("mnist", root=tmp_path).count("train", "3") == 1
    for name, whole in (("train-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):

        def check(content: bytes, name: str = name) -> None:
            (raw / name).write_bytes(content)
            open_or_refuse("mnist", tmp_path, "")

        hunt("idx", whole, check, budget=100)
        (raw / name).unlink()
        packed = gzip.compress(whole)

        def check_packed(content: bytes, name: str = name) -> None:
            (raw / f"{name}.gz").write_bytes(content)
            open_or_refuse("mnist", tmp_path, "")

        hunt("idx-gz", packed, check_packed, budget=100)
        (raw / f"{name}.gz").unlink()
        (raw / name).write_bytes(whole)


def test_cifar_files_run_no_code_and_fail_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (tmp_path / "mark").unlink(missing_ok=True)

    class Attack:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "mark",)

    batch = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]})
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for name in names:
        (folder / name).write_bytes(batch)

    def check(content: bytes) -> None:
        (folder / "test_batch").write_bytes(content)
        open_or_refuse("cifar10", tmp_path, "")

    check(pickle.dumps(Attack()))
    hunt("cifar", batch, check, budget=200)
    assert not (tmp_path / "mark").exists()


def test_the_register_of_sources(tmp_path: Path) -> None:
    class_folders(tmp_path / "pets", {"cat": 1, "dog": 1})
    register("pets", tmp_path / "pets", tmp_path)
    file = tmp_path / "sources.json"

    def check(content: bytes) -> None:
        file.write_bytes(content)
        open_or_refuse("pets", tmp_path, "")

    hunt("sources", file.read_bytes(), check)
    for content in (
        "[]",
        "3",
        '{"pets": 3}',
        '{"pets": null}',
        '{"pets": ""}',
        '{"pets": "a\\u0000b"}',
        "[" * 10**5,
    ):
        check(content.encode())


def test_registered_path_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "sources.json").write_text(json.dumps({"long": "x" * 5000, "nul": "\0", "good": "/nowhere"}))
    problems = {row.name: row.problem for row in listing(tmp_path) if row.problem}
    assert set(problems) == {"long", "nul", "good"}


def test_register_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "sources.json").mkdir()
    with pytest.raises(ClCnapsError, match=r"sources\.json is a folder, pipe or device"):
        registered(tmp_path)
