"""The one message that Meta-Dataset's records hold, in protocol-buffer form: an image file and its label.

The message is `tf.train.Example`: Features (field 1) holding map entries (field 1) of a key (1) and a Feature
(2), which is a BytesList (1) or an Int64List (3) of values (1). Nothing else of the format is needed here.
"""

from __future__ import annotations

from collections.abc import Iterator

from cl_cnaps.errors import BadInputError

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode_example(image: bytes, label: int) -> bytes:
    """An Example with features `image` (the bytes of an image file) and `label`."""
    packed_label = _field(1, _varint(label))
    return _field(1, _entry("image", _field(1, _field(1, image))) + _entry("label", _field(3, packed_label)))


def decode_example(data: bytes, where: str) -> tuple[bytes, int]:
    """Image bytes and label of an Example; other features are passed over. `where` names it in errors."""
    image: bytes | None = None
    label: int | None = None
    try:
        for features in _each(data, 1):
            for entry in _each(features, 1):
                key, feature = next(_each(entry, 1), b""), next(_each(entry, 2), b"")
                if key == b"image":
                    image = next(_each(next(_each(feature, 1), b""), 1), None)
                elif key == b"label":
                    label = _first_integer(next(_each(feature, 3), b""))
    except (IndexError, ValueError) as error:
        raise BadInputError(f"{where}: not a tf.train.Example ({error})") from error
    if image is None or label is None:
        raise BadInputError(f"{where}: the record has no {'image' if image is None else 'label'}")
    return image, label


def _entry(key: str, feature: bytes) -> bytes:
    return _field(1, _field(1, key.encode()) + _field(2, feature))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _each(message: bytes, number: int) -> Iterator[bytes]:
    """The length-delimited fields of this number."""
    for found, payload in _fields(message):
        if found == number and isinstance(payload, bytes):
            yield payload


def _first_integer(message: bytes) -> int | None:
    """First value of an Int64List, whether packed (as TensorFlow writes it) or not."""
    for number, payload in _fields(message):
        if number == 1:
            return payload if isinstance(payload, int) else _read_varint(payload, 0)[0]
    return None


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field runs past the end")
        yield tag >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number runs over 64 bits")
