from __future__ import annotations

import multiprocessing
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cl_cnaps.data import records as tfrecords
from cl_cnaps.data.records import RecordReader, decode_example, encode_example, record_index, write_records
from cl_cnaps.errors import BadInputError, MissingDataError

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


def test_other_features_and_unpacked_label() -> None:
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
def test_random_bytes_are_refused(data: bytes) -> None:
    try:
        decode_example(data, "x")
    except BadInputError as error:
        assert str(error).startswith("x: ")


@given(st.integers(0, len(BY_HAND) - 1))
def test_a_cut_message_is_refused(size: int) -> None:
    with pytest.raises(BadInputError):
        decode_example(BY_HAND[:size], "x")


RECORDS = [b"first", b"", bytes(range(256)) * 3]


def slow_crc32c(data: bytes) -> int:
    """Castagnoli's CRC bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def slow_record(data: bytes) -> bytes:
    """A record straight from TensorFlow's description of the format."""

    def masked(part: bytes) -> bytes:
        crc = slow_crc32c(part)
        rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
        return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_records(tmp_path / "0.tfrecords", RECORDS)
    return tmp_path / "0.tfrecords"


def read_all(file: Path) -> list[bytes]:
    reader = RecordReader()
    return [reader.read(file, int(offset)) for offset in record_index(file)[:, 0]]


def test_the_slow_checksum_is_the_published_one() -> None:
    assert slow_crc32c(b"123456789") == 0xE3069283


def test_files_are_as_the_format_says(file: Path) -> None:
    assert file.read_bytes() == b"".join(map(slow_record, RECORDS))
    assert read_all(file) == RECORDS


def test_any_record_is_read_alone(file: Path) -> None:
    offsets = record_index(file)[:, 0].tolist()
    assert offsets == [0, 16 + 5, 16 + 5 + 16]
    assert RecordReader().read(file, offsets[2]) == RECORDS[2]


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    assert write_records(tmp_path / "x", []) == 0
    assert record_index(tmp_path / "x").shape == (0, 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_is_found_with_file_and_offset(file: Path, data: st.DataObject) -> None:
    good = b"".join(map(slow_record, RECORDS))
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= 1 << data.draw(st.integers(0, 7))
    damaged = file.with_name("damaged.tfrecords")
    damaged.write_bytes(bad)
    with pytest.raises(BadInputError, match=r"damaged\.tfrecords: record at byte \d+ is (corrupt|truncated)"):
        read_all(damaged)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_truncated_record_file(file: Path, data: st.DataObject) -> None:
    good = b"".join(map(slow_record, RECORDS))
    ends = {0, 21, 37, len(good)}
    size = data.draw(st.integers(0, len(good)).filter(lambda size: size not in ends))
    cut = file.with_name("cut.tfrecords")
    cut.write_bytes(good[:size])
    start = max(end for end in ends if end < size)
    with pytest.raises(BadInputError, match=rf"cut\.tfrecords: record at byte {start} is truncated"):
        read_all(cut)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="none"):
        record_index(tmp_path / "none")
    with pytest.raises(MissingDataError, match="none"):
        RecordReader().read(tmp_path / "none", 0)


def test_index_follows_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "long"
    write_records(file, [b"x"] * 300)
    first = record_index(file)
    with monkeypatch.context() as patch:
        patch.setattr(tfrecords, "_scan", lambda *_: pytest.fail("scanned again"))
        assert (record_index(file) == first).all()
    write_records(file, [b"xy"] * 300)
    assert record_index(file)[1, 0] == 18


def test_at_most_so_many_files_are_open(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}" for i in range(5)]
    for i, path in enumerate(files):
        write_records(path, [bytes([i])])
    reader = RecordReader(max_open=2)
    for _ in range(2):
        assert [reader.read(path, 0) for path in files] == [bytes([i]) for i in range(5)]
        assert len(reader._open) == 2


def test_reader_in_other_processes(file: Path) -> None:
    offsets = record_index(file)[:, 0].tolist() * 50
    reader = RecordReader()
    assert reader.read(file, offsets[0]) == b"first"  # open when the processes are forked
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.starmap(reader.read, [(file, offset) for offset in offsets], chunksize=7) == RECORDS * 50
    assert pickle.loads(pickle.dumps(reader)).read(file, 0) == b"first"


def test_few_open_files(tmp_path: Path) -> None:
    for i in range(200):
        write_records(tmp_path / f"{i}.tfrecords", [b"a", b"b"])
    script = """
import resource, sys
from pathlib import Path
from cl_cnaps.data.records import RecordReader, record_index
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
reader = RecordReader()
files = sorted(Path(sys.argv[1]).glob("*.tfrecords"))
for file in files * 2:
    offsets = record_index(file)[:, 0].tolist()
    assert [reader.read(file, offset) for offset in offsets] == [b"a", b"b"]
print(len(files))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
