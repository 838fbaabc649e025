from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from data.pictures import class_folders, file_bytes, picture, zipped
from data.specs import FLAT
from PIL import Image
from scipy.io import savemat

from cl_cnaps.data import open_source, registry
from cl_cnaps.data.arrays import ArraySource, LabelledPixels
from cl_cnaps.data.catalog import CATALOG, completeness, is_complete
from cl_cnaps.data.conversion import convert
from cl_cnaps.data.registry import listing, register, registered, source
from cl_cnaps.data.spec import parse_spec
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError


def test_a_directory_comes_before_a_zip(tmp_path: Path) -> None:
    class_folders(tmp_path / "cifar10", {"train/truck": 1, "train/airplane": 2, "test/truck": 1})
    zipped(class_folders(tmp_path / "x", {"train/cat": 1, "test/cat": 1}), tmp_path / "cifar10.zip")
    source = open_source("cifar10", root=tmp_path)
    assert source.classes("train") == ("airplane", "truck")  # label order, not alphabetical by accident
    assert source.origin.startswith("cifar10/ in the data root: 3 of 50,000 train images in 2 of 10 classes")


def test_class_folders_have_the_official_order(tmp_path: Path) -> None:
    garments = {f"train/{name}": 1 for name in ("Bag", "ankle_boot", "Coat", "T-shirt_top")}
    class_folders(tmp_path / "fashion_mnist", garments)
    source = open_source("fashion-mnist", root=tmp_path)
    assert source.classes("train") == ("T-shirt_top", "Coat", "Bag", "ankle_boot")
    assert source.grey


@pytest.mark.parametrize(
    "name", ["CIFAR-100", "cifar100", "Cu_Birds", "gtsrb", "flowers102", "mini_imagenet"]
)
def test_sets_are_known_by_other_spellings(name: str, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"is not in .*CL_CNAPS_DATA"):
        open_source(name, root=tmp_path)


def test_what_is_missing_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        open_source("cifar10", root=tmp_path)
    for part in (
        str(tmp_path),
        "cifar10/",
        "cifar10.zip",
        "train/, test/, each <class>/<image>",
        "data fetch cifar10",
    ):
        assert part in str(caught.value)
    with pytest.raises(MissingDataError, match="images_background/ and images_evaluation/"):
        open_source("omniglot", root=tmp_path)
    with pytest.raises(MissingDataError, match=r"with <class>\.npy"):
        open_source("quickdraw", root=tmp_path)
    with pytest.raises(MissingDataError) as caught:
        open_source("mscoco", root=tmp_path)
    assert "fetch" not in str(caught.value)


def test_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"no data set called 'cifar11'.*cifar10.*folder:PATH"):
        open_source("cifar11", root=tmp_path)


def test_names_that_were_registered_are_found(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "photos" / "mushrooms", {"edible": 2, "not": 3})
    root = tmp_path / "root"
    register("mushrooms", folder, root)
    source = open_source("mushrooms", root=root)
    assert (source.name, source.classes("all")) == ("mushrooms", ("edible", "not"))
    with pytest.raises(BadInputError, match="registered already"):
        register("mushrooms", tmp_path, root)
    register("mushrooms", tmp_path, root, replace=True)
    assert registered(root) == {"mushrooms": tmp_path.resolve()}


def test_bad_names_are_refused(tmp_path: Path) -> None:
    for name in ("MNIST", "cifar-10"):
        with pytest.raises(BadInputError, match="name of a published data set"):
            register(name, tmp_path, tmp_path)
    for name in ("folder:x", "", "-x", "a b"):
        with pytest.raises(BadInputError, match="cannot be a name"):
            register(name, tmp_path, tmp_path)
    (tmp_path / "sources.json").write_text("[")
    with pytest.raises(BadInputError, match=r"sources\.json: not a JSON file"):
        open_source("anything", root=tmp_path)


def test_data_root_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClCnapsError, match=r"cannot be written .*folder:"):
        register("mine", tmp_path, tmp_path / "file")


def test_records_in_the_data_root_are_found(tmp_path: Path) -> None:
    birds = class_folders(tmp_path / "birds", {"cat": 1, "dog": 2})
    convert(open_source(f"folder:{birds}"), parse_spec(FLAT), tmp_path / "root" / "records" / "cu_birds")
    source = open_source("cu_birds", root=tmp_path / "root")
    assert source.name == "cu_birds"
    assert (
        source.origin
        == "records in records/cu_birds in the data root: 3 of 11,788 images in 2 of 200 classes"
    )


def test_traffic_signs_in_torchvisions_layout(tmp_path: Path) -> None:
    base = tmp_path / "gtsrb"
    for folder, count in (
        ("GTSRB/Training/00000", 2),
        ("GTSRB/Training/00014", 1),
        ("GTSRB/Final_Test/Images", 2),
    ):
        (base / folder).mkdir(parents=True)
        for i in range(count):
            (base / folder / f"{i:05d}.ppm").write_bytes(file_bytes(picture(i), "PPM"))
    (base / "GT-final_test.csv").write_text("Filename;Width;ClassId\n00000.ppm;12;14\n00001.ppm;12;0\n")
    source = open_source("traffic_sign", root=tmp_path)
    assert {s: {c: source.count(s, c) for c in source.classes(s)} for s in source.splits} == {
        "train": {"00000": 2, "00014": 1},
        "test": {"00000": 1, "00014": 1},
    }
    assert source.where("test", "00014", 0).endswith("Images/00000.ppm")
    assert source.images("test", "00014", [0], 8).any()
    (base / "GT-final_test.csv").unlink()
    with pytest.raises(MissingDataError, match=r"GT-final_test\.csv"):
        open_source("traffic_sign", root=tmp_path)


def test_flowers_in_torchvisions_layout(tmp_path: Path) -> None:
    base = tmp_path / "flowers-102"
    (base / "jpg").mkdir(parents=True)
    for i in (1, 2, 3):
        (base / "jpg" / f"image_{i:05d}.jpg").write_bytes(file_bytes(picture(i), "JPEG"))
    savemat(str(base / "imagelabels.mat"), {"labels": np.array([[10, 2, 10]])})
    source = open_source("vgg_flower", root=tmp_path)
    assert {name: source.count("all", name) for name in source.classes("all")} == {"2": 1, "10": 2}
    assert source.where("all", "10", 1).endswith("image_00003.jpg")
    (base / "imagelabels.mat").write_bytes(b"damaged")
    with pytest.raises(BadInputError, match=r"imagelabels\.mat: damaged"):
        open_source("vgg_flower", root=tmp_path)


def test_completeness_is_said_by_what_differs() -> None:
    official = {"train": (2, 10), "test": (2, 4)}
    whole = {"train": {"a": 5, "b": 5}, "test": {"a": 2, "b": 2}}
    assert is_complete(whole, official)
    assert completeness(whole, official) == "complete"
    assert is_complete({"all": {"a": 7, "b": 7}}, official)  # the same images, not split
    part = {"train": {"a": 3, "b": 3}, "test": {"a": 2}}
    assert not is_complete(part, official)
    assert completeness(part, official) == "3 of 5 train images a class, 2 of 4 test images in 1 of 2 classes"


def test_listing_with_a_bad_zip(tmp_path: Path) -> None:
    (tmp_path / "cifar10.zip").write_bytes(b"no zip")
    register("gone", tmp_path / "gone", tmp_path)
    rows = {row.name: row for row in listing(tmp_path)}
    assert set(rows) == {*CATALOG, "gone"}
    assert rows["mnist"].found
    assert not rows["cifar100"].found
    assert not rows["cifar100"].problem
    assert "neither a folder nor a readable zip" in rows["cifar10"].problem
    assert "gone does not exist" in rows["gone"].problem
    assert json.dumps(rows["mnist"].as_json())


def test_real_sources_are_what_their_description_says(shared_data: Path) -> None:
    counts = {
        "mnist": {"train": (10, 60_000), "test": (10, 10_000)},
        "cifar10": {"train": (10, 5_000), "test": (10, 2_000)},
        "cifar100": {"train": (100, 12_000), "test": (100, 4_000)},
        "omniglot": {"background": (964, 19_280), "evaluation": (659, 13_180)},
        "mini-imagenet": {"train": (64, 6_400), "val": (16, 960), "test": (20, 2_000)},
        "cu_birds": {"all": (200, 6_000)},
        "dtd": {"all": (10, 1_200)},
        "quickdraw": {"all": (345, 34_500)},
        "vgg_flower": {"all": (102, 4_080)},
        "traffic_sign": {"train": (43, 2_580), "test": (43, 1_290)},
        "mscoco": {"all": (80, 2_337)},
    }
    for name, expected in counts.items():
        source = open_source(name, root=shared_data)
        found = {
            s: (len(source.classes(s)), sum(source.count(s, c) for c in source.classes(s)))
            for s in source.splits
        }
        assert found == expected, name
        assert source.complete is (name in {"mnist", "omniglot"})
        split = source.splits[-1]
        last = source.classes(split)[-1]
        images = source.images(split, last, [0, source.count(split, last) - 1], 24)
        assert images.float().std() > 1
        assert isinstance(source.image(split, last, 0), Image.Image)


def read() -> dict[str, LabelledPixels]:
    return {"all": LabelledPixels(np.zeros((6, 5, 5), dtype=np.uint8), np.arange(6) % 2)}


def squares() -> ArraySource:
    return ArraySource("squares", "made up", read, ("black", "white"))


@pytest.fixture(autouse=True)
def registry_as_it_was() -> Iterator[None]:
    before = dict(registry.OPENERS)
    yield
    registry.OPENERS.clear()
    registry.OPENERS.update(before)


def test_it_is_opened_and_listed_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no data set called 'squares'"):
        open_source("squares", root=tmp_path)
    assert source("squares")(squares) is squares
    found = open_source("squares", root=tmp_path)
    assert (found.classes("all"), found.count("all", "white"), found.origin) == (
        ("black", "white"),
        3,
        "made up",
    )
    rows = {row.name: row for row in listing(tmp_path)}
    assert rows["squares"].splits == {"all": (2, 6)}
    with pytest.raises(MissingDataError, match="Registered: squares"):
        open_source("circles", root=tmp_path)


def test_names_that_would_mislead_are_refused(tmp_path: Path) -> None:
    source("squares")(squares)
    with pytest.raises(BadInputError, match="called 'squares' already"):
        source("squares")(squares)
    with pytest.raises(BadInputError, match="name of a published data set"):
        source("CIFAR-10")(squares)
    with pytest.raises(BadInputError, match="cannot be a name"):
        source("folder:squares")(squares)
    source("circles")(squares)
    with pytest.raises(BadInputError, match="registered as 'circles' calls itself 'squares'"):
        open_source("circles", root=tmp_path)
