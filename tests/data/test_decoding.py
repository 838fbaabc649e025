from __future__ import annotations

import numpy as np
import pytest
import torch
from data.pictures import file_bytes, picture, pixels
from PIL import Image

from cl_cnaps.data import source
from cl_cnaps.data.source import as_tensor, decode
from cl_cnaps.errors import BadInputError


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
def test_lossless_files_decode_to_their_pixels(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    assert pixels(decode(file_bytes(picture(1), kind, **options), "x")) == pixels(picture(1))


def test_grey_modes() -> None:
    assert decode(file_bytes(picture(1, mode="L")), "x").mode == "L"
    two = Image.fromarray(np.array([[True, False], [False, True]]))
    assert np.asarray(decode(file_bytes(two), "x")).tolist() == [[255, 0], [0, 255]]


def test_palette_and_alpha_become_rgb() -> None:
    assert decode(file_bytes(picture(1).quantize(8)), "x").mode == "RGB"
    assert pixels(decode(file_bytes(picture(1).convert("RGBA")), "x")) == pixels(picture(1))


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    deep = Image.fromarray(np.array([[0, 256, 32768, 65535]], dtype=np.uint16))
    assert np.asarray(decode(file_bytes(deep), "x")).tolist() == [[0, 1, 128, 255]]


def test_a_photo_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    sideways = decode(file_bytes(picture(1, (12, 10)), "JPEG", exif=exif), "x")
    assert sideways.size == (10, 12)


def test_damaged_files_are_named() -> None:
    whole = file_bytes(picture(1, (64, 64)), "JPEG")
    with pytest.raises(BadInputError, match=r"a\.jpg: damaged"):
        decode(whole[: len(whole) // 2], "a.jpg")
    with pytest.raises(BadInputError, match=r"a\.jpg: not an image file \(5 bytes\)"):
        decode(b"hello", "a.jpg")
    with pytest.raises(BadInputError, match=r"a\.png"):
        decode(file_bytes(picture(1))[:-60], "a.png")


def test_too_many_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_PIXELS", 100)
    with pytest.raises(BadInputError, match="12 x 10 pixels; at most 100"):
        decode(file_bytes(picture(1)), "x")


def test_resizing_averages_what_it_shrinks() -> None:
    # Without antialiasing a stripe pattern of period 2 would alias to all black or all white.
    stripes = Image.fromarray(np.tile(np.array([0, 255], dtype=np.uint8), (64, 32)))
    small = as_tensor(stripes, 8)
    assert small.shape == (3, 8, 8)
    assert small.dtype == torch.uint8
    assert (small.float() - 127.5).abs().max() < 10


def test_an_image_of_the_right_size_is_left_alone() -> None:
    tensor = as_tensor(picture(3, (10, 10)), 10)
    assert torch.equal(tensor.permute(1, 2, 0), torch.from_numpy(np.array(picture(3, (10, 10)))))
