from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from data.pictures import class_folders, file_bytes, picture, pixels, zipped
from data.specs import FLAT, GRAPH, GROUPED
from PIL import ImageOps

from cl_cnaps.data import open_source
from cl_cnaps.data.conversion import convert, plan_conversion
from cl_cnaps.data.records import RecordSource, encode_example, write_records
from cl_cnaps.data.spec import matched, parse_spec
from cl_cnaps.errors import BadInputError, MissingDataError


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Records of cat, dog and owl: three of the four classes of the flat specification."""
    folder = class_folders(tmp_path / "pets", {"Cat": 3, "dog": 2, "7": 1, "newt": 1})
    result = convert(open_source(f"folder:{folder}"), parse_spec(FLAT), tmp_path / "records" / "pets")
    assert result.without_images == ("red fox",)
    assert result.not_in_spec == ("newt",)
    assert result.images == 6
    return result.folder


def test_folders_become_records_and_read_back_the_same(pets: Path, tmp_path: Path) -> None:
    records, folder = open_source(f"records:{pets}"), open_source(f"folder:{tmp_path / 'pets'}")
    assert {split: records.classes(split) for split in records.splits} == {
        "train": ("cat", "dog"),
        "test": ("007.Owl",),
    }
    assert records.count("train", "cat") == 3
    assert torch.equal(records.images("train", "cat", [2, 0], 9), folder.images("all", "Cat", [2, 0], 9))
    assert records.encoded("test", "007.Owl", 0) == (tmp_path / "pets" / "7" / "0.png").read_bytes()
    assert torch.equal(
        pickle.loads(pickle.dumps(records)).images("train", "dog", [1], 9),
        folder.images("all", "dog", [1], 9),
    )
    assert (
        open_source(f"folder:{pets}").digest() == records.digest()
    )  # records are known by their specification
    assert records.origin.endswith("6 images in 3 classes")


def test_what_is_written_is_the_official_form(pets: Path) -> None:
    document = json.loads((pets / "dataset_spec.json").read_text())
    assert document["classes_per_split"] == {"TRAIN": 2, "VALID": 0, "TEST": 1}
    assert document["images_per_class"] == {"0": 3, "1": 2, "2": 1}
    assert document["path"] == str(pets)
    assert sorted(path.name for path in pets.iterdir()) == [
        "0.tfrecords",
        "1.tfrecords",
        "2.tfrecords",
        "conversion.json",
        "dataset_spec.json",
    ]
    note = json.loads((pets / "conversion.json").read_text())
    assert note["classes_without_images"] == ["red fox"]


def test_zip_and_folder_convert_alike(pets: Path, tmp_path: Path) -> None:
    archive = zipped(tmp_path / "pets", tmp_path / "pets.zip")
    other = convert(open_source(f"folder:{archive}"), parse_spec(FLAT), tmp_path / "other").folder
    for file in pets.glob("*.tfrecords"):
        assert (other / file.name).read_bytes() == file.read_bytes()
    assert RecordSource(other).digest() == RecordSource(pets).digest()


def test_groups_and_graphs_are_kept(tmp_path: Path) -> None:
    letters = class_folders(tmp_path / "letters", {"Greek/character02": 1, "Old-Norse/character01": 2})
    folder = convert(open_source(f"folder:{letters}"), parse_spec(GROUPED), tmp_path / "a").folder
    source = RecordSource(folder)
    assert source.classes("test") == ("Old-Norse/character01",)
    assert source.image("test", "Old-Norse/character01", 0), "its record has the label of its class"
    things = class_folders(
        tmp_path / "things", {"train/cat": 1, "train/dog": 1, "train/hammer": 1, "test/oak": 1}
    )
    source = RecordSource(convert(open_source(f"folder:{things}"), parse_spec(GRAPH), tmp_path / "b").folder)
    assert source.spec.graphs is not None
    assert [node.wn_id for node in source.spec.graphs["TRAIN"] if node.children] == ["root", "animal", "pet"]


def test_splits_can_be_chosen_and_colours_inverted(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"train/cat": 2, "test/cat": 1})
    source = open_source(f"folder:{folder}")
    both = RecordSource(convert(source, parse_spec(FLAT), tmp_path / "both").folder)
    assert both.count("train", "cat") == 3
    one = RecordSource(
        convert(source, parse_spec(FLAT), tmp_path / "one", splits=["test"], invert=True).folder
    )
    assert one.count("train", "cat") == 1
    assert pixels(ImageOps.invert(one.image("train", "cat", 0))) == pixels(source.image("test", "cat", 0))


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 2, "dog": 2})
    (folder / "dog" / "1.png").write_bytes(b"damaged")
    with pytest.raises(BadInputError, match=r"dog/1\.png: not an image"):
        convert(open_source(f"folder:{folder}"), parse_spec(FLAT), tmp_path / "out" / "pets")
    assert list((tmp_path / "out").iterdir()) == []


def test_conversion_refused(pets: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="exists; records are only written to a new folder"):
        convert(open_source(f"folder:{tmp_path / 'pets'}"), parse_spec(FLAT), pets)
    cars = class_folders(tmp_path / "cars", {"vw": 1})
    with pytest.raises(BadInputError, match=r"no class of cars is one of the 4 classes .* it has vw"):
        convert(open_source(f"folder:{cars}"), parse_spec(FLAT), tmp_path / "x")


def test_shards_and_pools_are_read_as_one_class(tmp_path: Path) -> None:
    document = copy.deepcopy(FLAT) | {
        "classes_per_split": {"TRAIN": 1, "VALID": 0, "TEST": 1},
        "class_names": {"0": "cat", "1": "dog"},
        "images_per_class": {"0": {"train": 2, "test": 1}, "1": {"train": 1, "test": 1}},
        "file_pattern": "{}_{}.tfrecords",
    }
    (tmp_path / "dataset_spec.json").write_text(json.dumps(document))
    for name, numbers in (("0_train", [1, 2]), ("0_test", [0]), ("1_train", [4]), ("1_test", [3])):
        label = int(name[0])
        write_records(
            tmp_path / f"{name}.tfrecords", (encode_example(file_bytes(picture(n)), label) for n in numbers)
        )
    source = RecordSource(tmp_path)
    assert (source.count("train", "cat"), source.count("test", "dog")) == (3, 2)
    # Files come in the order of their names: test before train.
    assert [pixels(source.image("train", "cat", i)) for i in range(3)] == [
        pixels(picture(n)) for n in (0, 1, 2)
    ]
    assert "0_train.tfrecords at byte 0" in source.where("train", "cat", 1)


def test_records_unlike_their_specification(pets: Path) -> None:
    good = (pets / "1.tfrecords").read_bytes()
    write_records(pets / "1.tfrecords", [encode_example(file_bytes(picture(1)), 1)])
    with pytest.raises(BadInputError, match=r"1\.tfrecords has 1 records; dataset_spec\.json has 2"):
        RecordSource(pets).image("train", "dog", 0)
    write_records(pets / "1.tfrecords", [encode_example(file_bytes(picture(1)), 7)] * 2)
    with pytest.raises(BadInputError, match=r"1\.tfrecords at byte 0: label 7 in a record of class 1"):
        RecordSource(pets).image("train", "dog", 0)
    (pets / "1.tfrecords").write_bytes(good[:-3])
    with pytest.raises(
        BadInputError, match=r"1\.tfrecords: record at byte \d+ is truncated \(3 bytes are missing\)"
    ):
        RecordSource(pets).image("train", "dog", 0)
    assert RecordSource(pets).image("train", "cat", 0)  # the other classes are fine
    (pets / "1.tfrecords").unlink()
    with pytest.raises(
        MissingDataError, match=r"1 of the 3 classes .* have no record file; .* class 1 \(dog\)"
    ):
        RecordSource(pets)


def test_the_digest_follows_the_records(pets: Path) -> None:
    before = RecordSource(pets).digest()
    write_records(pets / "2.tfrecords", [encode_example(file_bytes(picture(99)), 2)])
    assert RecordSource(pets).digest() != before


@pytest.mark.parametrize(
    ("name", "classes", "images"),
    [
        ("dtd", {"train": 7, "test": 3}, 1200),
        ("mscoco", {"val": 40, "test": 40}, 2337),
        ("traffic_sign", {"test": 43}, 2580),
    ],
)
def test_real_sets_as_records(
    shared_data: Path, official_specs: Path, tmp_path: Path, name: str, classes: dict[str, int], images: int
) -> None:
    source = open_source(name, root=shared_data)
    plan = plan_conversion(source, tmp_path / "out", specs=official_specs)
    result = convert(source, plan.spec, plan.folder, splits=plan.splits, invert=plan.invert)
    assert (result.images, result.not_in_spec) == (images, ())
    records = RecordSource(result.folder)
    assert {split: len(records.classes(split)) for split in records.splits} == classes
    split, last = records.splits[-1], records.classes(records.splits[-1])[-1]
    (own,) = matched([last], [c for s in plan.splits for c in source.classes(s)]).values()
    assert torch.equal(
        records.images(split, last, [0, 1], 32), source.images(plan.splits[0], own, [0, 1], 32)
    )
