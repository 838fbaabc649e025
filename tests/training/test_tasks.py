"""Which tasks a recipe makes, and that they are functions of the seed and their number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from training.small import ColourSource, small_data, small_recipe

from cl_cnaps.episodes.episode_images import SPLIT
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.training.class_pools import class_pool
from cl_cnaps.training.ranks import one_by_one
from cl_cnaps.training.recipe import Augmentation, SourcePart
from cl_cnaps.training.tasks import augmented, open_data


def test_tasks_are_functions_of_seed_and_number() -> None:
    first, again = small_data(small_recipe()), small_data(small_recipe())
    other = small_data(small_recipe(seed=1))
    for index in (0, 5, 3):
        task, same = first.training[index], again.training[index]
        assert first.training.episode(index).source == again.training.episode(index).source
        assert torch.equal(task.batch.support_images, same.batch.support_images)
        assert torch.equal(task.batch.query_labels, same.batch.query_labels)
    assert any(first.training.episode(i) != other.training.episode(i) for i in range(4))


def test_ways_shots_and_classes() -> None:
    data = small_data(small_recipe())
    episodes = [data.training.episode(i) for i in range(60)]
    assert {e.way for e in episodes} == {2, 3, 4}
    assert {int(e.shots[0]) for e in episodes} == {1, 2, 3}
    assert {int(q) for e in episodes for q in e.queries} == {2}
    assert {e.source for e in episodes} == {"red", "blue"}
    assert sum(e.source == "blue" for e in episodes) > 30, "blue has twice the weight of red"
    trained = {name for e in episodes for name in e.class_names}
    validated = {
        name for d in data.validation.values() for i in range(20) for name in d.episode(i).class_names
    }
    assert len(trained) == len(validated) == 6
    assert not trained & validated


def test_grouped_tasks_stay_in_one_group() -> None:
    sources = [{"name": "red", "train": "train", "validate": "val", "grouped": True}]
    data = small_data(small_recipe(sources=sources))
    episodes = [data.training.episode(i) for i in range(40)]
    assert all(len({name.split("/")[0] for name in e.class_names}) == 1 for e in episodes)
    assert {e.class_names[0].split("/")[0] for e in episodes} == {"group0", "group1"}
    assert max(e.way for e in episodes) == 4
    assert {e.way for e in episodes if e.class_names[0].startswith("group1")} == {2}, "it has two classes"


def test_images_are_those_of_the_episode() -> None:
    data = small_data(small_recipe(augmentation={"low_resolution_share": 0.0, "invert_share": 0.0}))
    task, episode = data.training[2], data.training.episode(2)
    source = ColourSource(episode.source)
    for images, rows in (
        (task.batch.support_images, episode.support),
        (task.batch.query_images, episode.query),
    ):
        for image, (label, index) in zip(images, rows.tolist(), strict=True):
            assert torch.equal(image, source.images("train", episode.class_names[label], [index], 32)[0])


def test_loading_in_other_processes_changes_nothing() -> None:
    data = small_data(small_recipe())
    assert next(one_by_one(data.training, range(10**12), 0)) is not None
    here = list(one_by_one(data.training, [3, 0, 7], 0))
    there = list(one_by_one(data.training, [3, 0, 7], 1))
    assert [task.index for task in there] == [3, 0, 7]
    for one, other in zip(here, there, strict=True):
        assert torch.equal(one.batch.support_images, other.batch.support_images)


def test_classes_with_too_few_images() -> None:
    with pytest.raises(BadInputError, match="`min_images`"):
        small_data(small_recipe(tasks={"shots": [1, 11]}))
    part = SourcePart("red", train="train", min_images=13)
    with pytest.raises(BadInputError, match="no class with at least 13 images"):
        class_pool(part, "train", ColourSource("red"), ColourSource("red"), specs=None, seed=0)


def test_classes_dealt_out_by_seed() -> None:
    sources = [
        {
            "name": "red",
            "classes": "fractions",
            "train": "TRAIN",
            "validate": "VALID",
            "fractions": [0.5, 0.5, 0],
        }
    ]
    data, again = (small_data(small_recipe(sources=sources)) for _ in range(2))
    train, val = data.training.pools["red"], data.validation["red"].pools["red"]
    assert len(train.split.classes) == len(val.split.classes) == 6
    assert not set(train.split.classes.names) & set(val.split.classes.names)
    assert train.split.classes == again.training.pools["red"].split.classes


def official_spec(folder: Path) -> Path:
    """A specification of eight of the twelve classes, written as Meta-Dataset's are."""
    names = [f"group{k // 4}-class{k:02d}" for k in (0, 1, 6, 7, 2, 8, 9, 3)]
    folder.mkdir()
    content = {
        "name": "red",
        "classes_per_split": {"TRAIN": 4, "VALID": 3, "TEST": 1},
        "images_per_class": {str(i): 600 for i in range(8)},
        "class_names": {str(i): name for i, name in enumerate(names)},
        "path": "",
        "file_pattern": "{}.tfrecords",
        "__class__": "DatasetSpecification",
    }
    (folder / "red_dataset_spec.json").write_text(json.dumps(content))
    return folder


def test_classes_by_an_official_specification(tmp_path: Path) -> None:
    specs = official_spec(tmp_path / "specs")
    sources = [{"name": "red", "classes": "spec", "train": "TRAIN", "validate": "VALID"}]
    recipe = small_recipe(sources=sources, tasks={"sampler": "ranges", "ways": [2, 3]})
    data = open_data(recipe, 32, specs=specs, find=ColourSource)
    pool = data.training.pools["red"]
    assert sorted(name[-2:] for name in pool.split.classes.names) == ["00", "01", "06", "07"]
    assert set(pool.split.classes.sizes) == {12}, "as many images as there are, not as the file says"
    # The source has class 00 in its split train and class 06 in val: both are found.
    assert data.training[0].batch.support_images.shape[1:] in {(3, 32, 32), (3, 16, 16)}
    with pytest.raises(MissingDataError, match="--specs"):
        open_data(recipe, 32, find=ColourSource)
    with pytest.raises(MissingDataError, match=r"no red_dataset_spec\.json"):
        open_data(recipe, 32, specs=tmp_path, find=ColourSource)


def test_images_of_a_class_in_several_splits() -> None:
    class Both(ColourSource):
        def __init__(self) -> None:
            super().__init__("both")
            counts = {"group0/class00": 3, "group0/class01": 3}
            self._counts = {"train": dict(counts), "val": dict.fromkeys(counts, 4)}

    source = Both()
    part = SourcePart("both", classes="fractions", train="TRAIN", fractions=(1, 0, 0))
    pool = class_pool(part, "TRAIN", source, source, specs=None, seed=0)
    images = pool.view.images(SPLIT, "group0/class00", [5, 1, 3], 32)
    expected = [("val", 2), ("train", 1), ("val", 0)]
    for image, (split, index) in zip(images, expected, strict=True):
        assert torch.equal(image, source.images(split, "group0/class00", [index], 32)[0])


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"low_resolution": 16, "low_resolution_share": 1.0}, lambda old, new: new.shape[-1] == 16),
        ({"invert_share": 1.0}, lambda old, new: torch.equal(new, 255 - old)),
        ({"grey_share": 1.0}, lambda old, new: torch.equal(new[:, 0], new[:, 2])),
        ({"rotate_share": 1.0}, lambda old, new: any(torch.equal(new, old.rot90(k, (2, 3))) for k in (1, 2, 3))),
        ({}, torch.equal),
    ],
)  # fmt: skip
def test_augmentation(change: dict[str, float], check: object) -> None:
    data = small_data(small_recipe())
    batch = data.validation["red"][0].batch
    new = augmented(batch, Augmentation(**change), seed=0, index=3, grey=True)  # type: ignore[arg-type]
    assert check(batch.support_images, new.support_images)  # type: ignore[operator]
    assert check(batch.query_images, new.query_images)  # type: ignore[operator]
    assert new.query_images.dtype == torch.uint8
    assert torch.equal(new.support_labels, batch.support_labels)


@pytest.mark.parametrize("change", ["invert_share", "rotate_share"])
def test_photographs_are_neither_inverted_nor_turned(change: str) -> None:
    batch = small_data(small_recipe()).validation["red"][0].batch
    new = augmented(batch, Augmentation(**{change: 1.0}), seed=0, index=3)  # type: ignore[arg-type]
    assert torch.equal(new.support_images, batch.support_images)


def test_mixed_tasks_may_have_looks() -> None:
    data = small_data(small_recipe(augmentation={"mixed_share": 1.0, "look_share": 1.0}))
    for index in range(60):  # among them patches, which are smaller than the other half's images
        batch = data.training[index].batch
        assert len(batch.support_images) == len(batch.support_labels)


def test_mixed_tasks_have_half_of_their_classes_from_another_source() -> None:
    plain = small_data(small_recipe(augmentation={"low_resolution_share": 0.0})).training
    changed = small_data(small_recipe(augmentation={"low_resolution_share": 0.0, "mixed_share": 0.5}))
    training, n_mixed = changed.training, 0
    for index in range(40):
        batch, own, other = training[index].batch, plain[index].batch, training._companion(index)
        if other is None:
            assert torch.equal(batch.support_images, own.support_images)
            continue
        n_mixed += 1
        assert other.source != training.episode(index).source
        kept = (own.way + 1) // 2
        added = min(own.way - kept, other.way)
        assert batch.way == kept + added == len(batch.support_labels.unique())
        mine = batch.query_labels < kept
        assert torch.equal(batch.query_images[mine], own.query_images[own.query_labels < kept])
        theirs = plain.pools[other.source].load(other, batch.query_images.shape[-1])
        assert torch.equal(batch.query_images[~mine], theirs.query_images[theirs.query_labels < added])
    assert 10 <= n_mixed <= 30
    assert all(data._companion(0) is None for data in changed.validation.values()), "validation is not mixed"


def test_classes_that_a_recipe_leaves_out() -> None:
    out = "group0/class00"
    sources = [{"name": "red", "train": "train", "validate": "val", "leave_out": [out]}]
    data = small_data(small_recipe(sources=sources))
    assert out not in data.training.pools["red"].split.classes.names
    assert data.sources["red"]["train"]["left_out"] == 1
    sources[0]["leave_out"] = ["group9/class99"]
    with pytest.raises(BadInputError, match="has no class 'group9/class99'"):
        small_data(small_recipe(sources=sources))


def test_half_of_the_tasks_are_shown_small() -> None:
    data = small_data(small_recipe())
    sizes = [data.training[i].batch.query_images.shape[-1] for i in range(40)]
    assert 10 <= sizes.count(16) <= 30
    assert set(sizes) == {16, 32}
