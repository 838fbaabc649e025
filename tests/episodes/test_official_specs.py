"""The official spec files of Meta-Dataset: what they hold, and the ILSVRC and Omniglot rules on them."""

from __future__ import annotations

import os
import time
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from cl_cnaps.data.spec import SPLITS, DatasetSpec, read_spec
from cl_cnaps.episodes import MetaDatasetSampler, SplitSpec
from cl_cnaps.episodes.spec import sampling_split
from cl_cnaps.paths import read_json


def split_of(spec: DatasetSpec, split: str) -> SplitSpec:
    return sampling_split(spec, split, spec.class_names)


@pytest.mark.parametrize(
    ("name", "train", "valid", "test"),
    [
        ("aircraft", 70, 15, 15),
        ("cu_birds", 140, 30, 30),
        ("dtd", 33, 7, 7),
        ("fungi", 994, 200, 200),
        ("ilsvrc_2012", 712, 158, 130),
        ("ilsvrc_2012_v2", 1000, 0, 0),
        ("mscoco", 0, 40, 40),
        ("omniglot", 883, 81, 659),
        ("quickdraw", 241, 52, 52),
        ("traffic_sign", 0, 0, 43),
        ("vgg_flower", 71, 15, 16),
    ],
)
def test_every_spec_is_read_and_sampled(official_specs, name, train, valid, test):
    spec = read_spec(official_specs / f"{name}_dataset_spec.json")
    assert spec.name == name
    for split, classes in (("TRAIN", train), ("VALID", valid), ("TEST", test)):
        part = split_of(spec, split)
        table = part.classes
        assert len(table) == classes
        if not classes:
            continue
        sizes = dict(zip(table.names, table.sizes, strict=True))
        sampler = MetaDatasetSampler(name, part, seed=0)
        for episode in map(sampler.episode, range(20)):
            assert 5 <= episode.way <= min(50, classes)
            assert len(episode.support) <= 500
            queries = min(10, min(sizes[c] for c in episode.class_names) // 2)
            assert set(episode.queries.tolist()) == {queries}
            for class_name, shots in zip(episode.class_names, episode.shots, strict=True):
                assert 1 <= shots <= sizes[class_name] - queries


def test_ids_are_those_of_the_record_files(official_specs):
    signs = read_spec(official_specs / "traffic_sign_dataset_spec.json")
    assert signs.class_names[14].startswith("14.")
    assert signs.classes["TEST"][14] == 14
    assert read_spec(official_specs / "cu_birds_dataset_spec.json").classes["TEST"] == range(170, 200)


def test_omniglot_episodes_are_of_one_alphabet(official_specs):
    test = split_of(read_spec(official_specs / "omniglot_dataset_spec.json"), "TEST")
    groups = test.groups
    assert groups is not None
    assert len(groups) == 20
    alphabet_of = {name: group for group, names in groups.items() for name in names}
    assert all(name.startswith(group) for name, group in alphabet_of.items())
    picked: Counter[str] = Counter()
    for episode in map(MetaDatasetSampler("omniglot", test, seed=0).episode, range(800)):
        (alphabet,) = {alphabet_of[name] for name in episode.class_names}
        assert 5 <= episode.way <= min(50, len(groups[alphabet]))
        picked[alphabet] += 1
    # 40 of each expected, with a standard deviation of 6.2, whatever the alphabet's size.
    assert all(10 < picked[alphabet] < 70 for alphabet in groups)


@pytest.mark.parametrize(("split", "concepts"), [("TRAIN", 113), ("VALID", 18), ("TEST", 15)])
def test_ilsvrc_episodes_are_the_leaves_of_one_concept(official_specs, split, concepts):
    part = split_of(read_spec(official_specs / "ilsvrc_2012_dataset_spec.json"), split)
    graph = part.graph
    assert graph is not None
    eligible = graph.eligible(5, 392)
    assert len(eligible) == concepts
    # 392 is the smallest bound with which every class is below some eligible concept.
    assert {leaf for span in eligible.values() for leaf in span} == set(graph.leaves)
    assert split != "TRAIN" or {leaf for s in graph.eligible(5, 391).values() for leaf in s} != set(
        graph.leaves
    )
    whole = {frozenset(span): node for node, span in eligible.items() if len(span) <= 50}
    large = [set(span) for span in eligible.values() if len(span) > 50]
    picked: Counter[str] = Counter()
    for episode in map(MetaDatasetSampler("ilsvrc_2012", part, seed=0).episode, range(400)):
        names = frozenset(episode.class_names)
        if episode.way == 50 and any(names < span for span in large):
            picked["large"] += 1
        else:
            picked[whole[names]] += 1
    p = len(large) / concepts
    assert abs(picked["large"] / 400 - p) < 4 * (p * (1 - p) / 400) ** 0.5


def test_a_thousand_ilsvrc_descriptions_take_seconds(official_specs):
    start = time.perf_counter()
    spec = read_spec(official_specs / "ilsvrc_2012_dataset_spec.json")
    sampler = MetaDatasetSampler(spec.name, split_of(spec, "TRAIN"), seed=0)
    for index in range(1_000):
        sampler.episode(index)
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize("name", ["ilsvrc_2012", "ilsvrc_2012_v2"])
def test_leaf_images_agree_with_the_spec(official_specs, name):
    spec = read_spec(official_specs / f"{name}_dataset_spec.json")
    leaf_images = read_json(official_specs / f"{name}_num_leaf_images.json")
    assert len(leaf_images) == 1000
    parts = [split_of(spec, split).classes for split in SPLITS]
    in_spec = {name: size for part in parts for name, size in zip(part.names, part.sizes, strict=True)}
    assert in_spec == leaf_images


def test_ilsvrc_restricted_to_all_classes(official_specs):
    spec = read_spec(official_specs / "ilsvrc_2012_dataset_spec.json")
    sizes = read_json(official_specs / "ilsvrc_2012_num_leaf_images.json")
    for split in SPLITS:
        assert split_of(spec, split).restricted(sizes) == split_of(spec, split)


def test_ilsvrc_restricted_to_the_mini_imagenet_classes(official_specs):
    archive = Path(os.environ["CL_CNAPS_DATA"]) / "mini_imagenet.zip"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    with zipfile.ZipFile(archive) as images:
        sizes = Counter(Path(name).parts[-2] for name in images.namelist() if name.endswith(".jpg"))
    assert len(sizes) == 100
    spec = read_spec(official_specs / "ilsvrc_2012_dataset_spec.json")
    mini = {split: split_of(spec, split).restricted(sizes) for split in SPLITS}
    assert sum(len(part.classes) for part in mini.values()) == 100
    train, whole = mini["TRAIN"], split_of(spec, "TRAIN").graph
    assert train.graph is not None
    assert whole is not None
    for node, span in train.graph.spans.items():
        assert span == tuple(leaf for leaf in whole.spans[node] if leaf in sizes)
        assert len(train.graph.children[node]) >= 2
    episode = MetaDatasetSampler(spec.name, train, seed=0).episode(0)
    assert all(
        sizes[name] >= shots + 10 for name, shots in zip(episode.class_names, episode.shots, strict=True)
    )
