"""Image files that are damaged, hostile or unusual: decoded rightly, or named and passed by."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from data.pictures import class_folders, file_bytes, picture
from faults.damage import hunt
from PIL import Image

from cl_cnaps.data import open_source
from cl_cnaps.data.source import decode
from cl_cnaps.data.verify import verify
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError

SIDEWAYS = Image.Exif()
SIDEWAYS[0x0112] = 6  # the camera was held on its side


@pytest.mark.parametrize("kind", ["JPEG", "MPO", "PNG", "TIFF", "WEBP"])
def test_photos_are_turned_upright_in_every_format(kind: str) -> None:
    image = picture(1, (12, 10))
    more = {"save_all": True, "append_images": [image]} if kind == "MPO" else {}
    assert decode(file_bytes(image, kind, exif=SIDEWAYS, **more), "x").size == (10, 12)


def test_a_png_that_is_turned_has_the_right_pixels() -> None:
    image = picture(1, (12, 10))
    found = np.asarray(decode(file_bytes(image, exif=SIDEWAYS), "x"))
    assert (found == np.rot90(np.asarray(image), -1)).all()


@pytest.mark.parametrize("kind", ["EPS", "DDS", "SPIDER", "PCX", "TGA", "ICO", "SGI", "PDF", "IM"])
def test_formats_that_are_not_promised_are_not_opened(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for starts in ("Popen", "run", "check_call", "check_output"):
        monkeypatch.setattr(subprocess, starts, lambda *_, **__: pytest.fail("another program was started"))
    image = picture(1, mode="L").convert("F") if kind == "SPIDER" else picture(1)
    with pytest.raises(BadInputError, match=r"x\.jpg: not an image file"):
        decode(file_bytes(image, kind), "x.jpg")


def broken_exif() -> bytes:
    """A JPEG whose orientation is a text of a million characters that is not there."""
    whole = file_bytes(picture(1), "JPEG", exif=SIDEWAYS)
    at = whole.index(b"\x01\x12")  # the tag, big-endian as Pillow writes it
    return whole[: at + 2] + b"\x00\x02\x00\x0f\xff\xff\xff\xff\xff\xff" + whole[at + 12 :]


def test_verification_names_every_bad_file_and_goes_on(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 3, "dog": 2})
    (folder / "cat" / "spider.png").write_bytes(file_bytes(picture(1, mode="L").convert("F"), "SPIDER"))
    (folder / "cat" / "nothing.png").symlink_to(tmp_path / "nowhere")
    (folder / "cat" / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "cat" / "pipe.png")
    (folder / "cat" / "empty.png").write_bytes(b"")
    (Path(os.fsdecode(bytes(folder) + b"/cat/caf\xe9.png"))).write_bytes(b"no image")
    (Path(os.fsdecode(bytes(folder) + b"/cat/caf\xe9.txt"))).write_bytes(b"notes")
    (folder / "cat" / "\x1b[31mred.png").write_bytes(b"no image")
    (folder / "cat" / f"{'7' * 240}.png").write_bytes(b"no image")
    result = verify(open_source(f"folder:{folder}"))
    assert result.images == 5
    assert len(result.bad) == 8
    text = "\n".join(result.bad)
    for name in ("spider", "nothing", "zero", "pipe", "empty", "caf\\udce9", "\\x1b[31mred", "777"):
        assert name in text
    text.encode()


def test_name_that_is_not_text(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 1, "dog": 1})
    Path(os.fsdecode(bytes(folder) + b"/cat/caf\xe9.png")).write_bytes(file_bytes(picture(3)))
    source = open_source(f"folder:{folder}")
    assert source.count("all", "cat") == 2
    assert len(source.digest()) == 64


def test_a_class_whose_name_is_not_text_is_refused(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 1, os.fsdecode(b"caf\xe9"): 1})
    with pytest.raises(BadInputError, match=r"caf.udce9.* not UTF-8"):
        open_source(f"folder:{folder}")


def test_a_class_folder_that_cannot_be_read_is_an_error(tmp_path: Path, nobody: None) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 3, "dog": 2})
    (folder / "dog").chmod(0)
    try:
        with pytest.raises(MissingDataError, match=r"set/dog.* cannot be read \(Permission denied\)"):
            open_source(f"folder:{folder}")
    finally:
        (folder / "dog").chmod(stat.S_IRWXU)


def test_a_folder_of_traffic_signs_that_cannot_be_read_is_an_error(tmp_path: Path, nobody: None) -> None:
    (tmp_path / "gtsrb").mkdir()
    (tmp_path / "gtsrb" / "GT-final_test.csv").write_text("Filename;ClassId\n")
    folder = class_folders(tmp_path / "gtsrb" / "GTSRB" / "Training", {"00000": 2, "00001": 2})
    (folder / "00001").chmod(0)
    try:
        with pytest.raises(MissingDataError, match=r"00001.* cannot be read \(Permission denied\)"):
            open_source("traffic_sign", root=tmp_path)
    finally:
        (folder / "00001").chmod(stat.S_IRWXU)


def test_files_that_are_no_images_are_counted(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 3, "dog": 2})
    (folder / "cat" / "photo.heic").write_bytes(b"?")
    (folder / "cow").mkdir()
    (folder / "cow" / "photo.heic").write_bytes(b"?")
    assert (
        "5 images in 2 classes, 2 files that are no images left out" in open_source(f"folder:{folder}").origin
    )


@pytest.mark.timeout(60)
def test_folders_linked_in_a_circle(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", dict.fromkeys("abc", 1))
    for name in "abc":
        for other in "abc":
            if other != name:
                (folder / name / f"to-{other}").symlink_to(folder / other)
    assert len(open_source(f"folder:{folder}").classes("all")) == 15  # every way without a circle


def test_the_number_of_folders_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cl_cnaps.data.trees.MAX_FOLDERS", 3)
    with pytest.raises(BadInputError, match="more than 3 folders"):
        open_source(f"folder:{class_folders(tmp_path / 'set', dict.fromkeys('abc', 1))}")


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "set", {"cat": 1})
    with (folder / "cat" / "huge.png").open("wb") as file:
        file.truncate(2**40)
    (line,) = verify(open_source(f"folder:{folder}")).bad
    assert "has 1,099,511,627,776 bytes" in line


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "MPO", "PNG", "PPM", "TIFF", "WEBP"])
@pytest.mark.filterwarnings("ignore")
def test_damaged_bytes_are_an_image_or_an_error(kind: str) -> None:
    more = {"save_all": True, "append_images": [picture(2)]} if kind == "MPO" else {}
    exif = {} if kind in ("BMP", "GIF", "PPM") else {"exif": SIDEWAYS}
    hunt("image", file_bytes(picture(1, (40, 30)), kind, **more, **exif), _decode_or_refuse)


def test_jpeg_with_a_bad_orientation() -> None:
    _decode_or_refuse(broken_exif())


def _decode_or_refuse(content: bytes) -> None:
    try:
        image = decode(content, "x.png")
    except ClCnapsError as error:
        assert "x.png" in str(error) and "\n" not in str(error)
    else:
        assert image.mode in ("L", "RGB")
        assert len(np.asarray(image)) == image.height


def test_many_folders_that_link_to_each_other(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {f"c{number}": 1 for number in range(12)})
    for one in range(12):
        for other in range(12):
            (folder / f"c{one}" / f"to{other}").symlink_to(folder / f"c{other}")
    with pytest.raises(ClCnapsError, match="reached by more than 32 paths"):
        open_source(f"folder:{folder}")


def test_link_to_itself(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 2})
    (folder / "loop").symlink_to("loop")
    (folder / "cat" / "loop.png").symlink_to("loop.png")
    found = verify(open_source(f"folder:{folder}"))
    assert found.images == 2
    assert len(found.bad) == 1 and "loop.png" in found.bad[0]


def test_name_with_a_line_break(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 2})
    (folder / "cat" / "x\n0 bad.png").write_bytes(b"no image")
    (bad,) = verify(open_source(f"folder:{folder}")).bad
    assert "\n" not in bad


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_pixels_of_unknown_range(dtype: type) -> None:
    pixels = Image.fromarray(np.linspace(0, 1, 16).reshape(4, 4).astype(dtype))
    with pytest.raises(ClCnapsError, match="x: pixels of 32 bits"):
        decode(file_bytes(pixels, "TIFF"), "x")
