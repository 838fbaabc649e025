"""Characters that the installation draws."""

from __future__ import annotations

import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.glyph_choice import choose
from cl_cnaps.data import glyphs, open_source, packed
from cl_cnaps.data.catalog import CATALOG
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.errors import MissingDataError


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> CountedSource:
    return open_source("glyphs", root=tmp_path_factory.mktemp("nothing"))


def characters(source: CountedSource, split: str) -> list[str]:
    return [chr(int(name.rpartition("U+")[2], 16)) for name in source.classes(split)]


def test_it_is_there_without_a_data_folder_and_complete(source: CountedSource) -> None:
    assert (source.splits, source.complete, source.grey) == (("train", "val", "test"), True, True)
    assert source.origin == "drawn with matplotlib's fonts: complete"
    classes = {split: len(source.classes(split)) for split in source.splits}
    assert classes["train"] > 900
    assert min(classes.values()) > 100
    assert {source.count("val", name) for name in source.classes("val")} == {glyphs.PER_CLASS}


def test_no_script_is_in_two_splits_and_none_alone(source: CountedSource) -> None:
    scripts = {
        split: {unicodedata.name(c).split()[0] for c in characters(source, split) if c.isalpha()}
        for split in source.splits
    }
    assert scripts == {"train": {"LATIN", "GREEK"}, "val": {"ARMENIAN"}, "test": {"CYRILLIC", "GEORGIAN"}}
    for split in source.splits:
        assert len({name.split("/")[0] for name in source.classes(split)}) >= 2


def test_classes_of_glyphs(
    source: CountedSource,
) -> None:
    everything = [c for split in source.splits for c in characters(source, split)]
    assert len(set(everything)) == len(everything)
    assert min(len(glyphs.faces_of(c)) for c in everything) >= 12
    for same in ("AΑА", "BΒВ", "oOοОо0", "pр", "sSѕЅ", "cCсС", "З3", "vV"):  # noqa: RUF001  (homoglyphs)
        assert len(set(same) & set(everything)) <= 1, same
    assert not any(c.isdigit() for c in everything)


def test_an_image_is_a_function_of_its_class_and_number(source: CountedSource) -> None:
    name = source.classes("test")[0]
    images = source.images("test", name, range(glyphs.PER_CLASS), 84)
    assert torch.equal(source.images("test", name, [7, 3], 84), images[[7, 3]])
    assert len(np.unique(images.flatten(1).numpy(), axis=0)) == glyphs.PER_CLASS
    again = pickle.loads(pickle.dumps(source))
    assert torch.equal(again.images("test", name, [7], 84)[0], images[7])
    assert again.digest() == source.digest()


def test_images_are_dark_on_white_and_whole(source: CountedSource) -> None:
    for split in source.splits:
        for name in source.classes(split)[::40]:
            image = source.image(split, name, 5)
            assert (image.mode, image.size) == ("L", (glyphs.SIDE, glyphs.SIDE))
            pixels = np.asarray(image)
            assert pixels.min() < 100
            assert pixels.mean() > 128
            assert image.getextrema()[1] == 255


def test_the_digest_follows_the_version(source: CountedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source.digest()
    monkeypatch.setattr(glyphs, "VERSION", glyphs.VERSION + 1)
    assert source.digest() != before


def test_it_packs_in_one_channel(source: CountedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {split: dict.fromkeys(source.classes(split)[:2], 3) for split in source.splits}
    monkeypatch.setattr(source, "_counts", few)
    name = source.classes("val")[1]
    assert torch.equal(packed(source, 32).images("val", name, [2], 32), source.images("val", name, [2], 32))


def test_without_the_fonts_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyphs, "FACES", ("Papyrus",))
    glyphs._font_folder.cache_clear()
    try:
        with pytest.raises(MissingDataError, match="pip install matplotlib"):
            open_source("glyphs", root=tmp_path)
    finally:
        glyphs._font_folder.cache_clear()


@pytest.mark.slow
def test_the_list_of_characters_is_what_the_rule_chooses() -> None:
    assert glyphs.chosen_characters() == choose()


def test_catalog_has_the_published_counts_of_glyphs() -> None:
    source = glyphs.GlyphSource()
    found = {split: (len(source.classes(split)), total(source, split)) for split in source.splits}
    assert found == CATALOG["glyphs"].official
