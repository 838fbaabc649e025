from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cl_cnaps.data.examples import decode_example, encode_example
from cl_cnaps.errors import BadInputError

# An Example of image b"\xff\xd8" and label 300, worked out by hand from the protocol-buffer encoding.
BY_HAND = bytes.fromhex(
    "0a 23"  # Features, 35 bytes
    " 0a 0f 0a 05 69 6d 61 67 65 12 06 0a 04 0a 02 ff d8"  # "image" -> BytesList of 2 bytes
    " 0a 10 0a 05 6c 61 62 65 6c 12 07 1a 05 0a 03 ac 82 00"  # "label" -> packed Int64List; 300, padded
)


def test_the_message_is_read_as_the_format_says() -> None:
    assert decode_example(BY_HAND, "x") == (b"\xff\xd8", 300)


@given(st.binary(max_size=300), st.integers(0, 2**63 - 1))
def test_what_is_written_is_read(image: bytes, label: int) -> None:
    assert decode_example(encode_example(image, label), "x") == (image, label)


def test_other_features_and_an_unpacked_label_are_understood() -> None:
    other = bytes.fromhex("0a 0b 0a 01 7a 12 06 12 04 0a 02 00 00")  # "z" -> FloatList
    image = bytes.fromhex("0a 0e 0a 05 69 6d 61 67 65 12 05 0a 03 0a 01 07")
    label = bytes.fromhex("0a 0d 0a 05 6c 61 62 65 6c 12 04 1a 02 08 05")  # 5, not packed
    features = other + image + label
    assert decode_example(b"\x0a" + bytes([len(features)]) + features, "x") == (b"\x07", 5)


def test_a_record_without_an_image_or_label_is_named() -> None:
    with pytest.raises(BadInputError, match="x: the record has no image"):
        decode_example(b"", "x")
    image_only = encode_example(b"i", 1).replace(b"label", b"lapel")
    with pytest.raises(BadInputError, match="x: the record has no label"):
        decode_example(image_only, "x")


@given(st.binary(max_size=60))
def test_anything_else_is_refused_and_nothing_else_raised(data: bytes) -> None:
    try:
        decode_example(data, "x")
    except BadInputError as error:
        assert str(error).startswith("x: ")


@given(st.integers(0, len(BY_HAND) - 1))
def test_a_cut_message_is_refused(size: int) -> None:
    with pytest.raises(BadInputError):
        decode_example(BY_HAND[:size], "x")
