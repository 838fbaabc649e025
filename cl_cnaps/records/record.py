"""Run records: one folder per finished run, with its configuration, environment, raw numbers and summary.

    <out>/<verb>/<name>/<id>/
        config.json        what was asked for; the id is a digest of it
        environment.json   versions, hardware, commit, digests of data and weights, seeds, command line
        <table>.csv        the raw numbers
        summary.json       what is computed from them
        figures/           drawn from them; may be deleted and drawn again

A record is written under a hidden name beside its place and moved there when it is whole and on disk, so a
folder with a record's name is a whole record, whatever was killed and when.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError
from cl_cnaps.records.strict_json import canonical, dumps

_PARTS = ("config", "environment", "summary")
_ID_LENGTH = 12
_STALE_SECONDS = 3600.0
_COMPONENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """A finished record, read back from its folder."""

    path: Path
    config: dict[str, Any]
    environment: dict[str, Any]
    summary: dict[str, Any]

    @property
    def verb(self) -> str:
        """The command that made it."""
        return self.path.parent.parent.name

    @property
    def name(self) -> str:
        """The recipe, or the name the run was given."""
        return self.path.parent.name

    @property
    def id(self) -> str:
        """Short digest of the configuration."""
        return self.path.name

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of `<name>.csv`, cells as text."""
        path = self.path / f"{name}.csv"
        if not path.is_file():
            raise MissingDataError(f"the record {self.path} has no table {path.name}")
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))


def config_digest(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration, independent of the order of its keys."""
    return hashlib.sha256(canonical(config, "config").encode()).hexdigest()


def record_path(out: Path, verb: str, name: str, config: Mapping[str, Any]) -> Path:
    """Where the record of this configuration is, or will be."""
    for what, value in (("verb", verb), ("name", name)):
        if not _COMPONENT.fullmatch(value):
            raise BadInputError(
                f"a record's {what} becomes a folder: {value!r} is not only letters, digits, '.', '_', '-'"
            )
    return out / verb / name / config_digest(config)[:_ID_LENGTH]


def record_name(text: str) -> str:
    """A folder name for anything a person may type, such as `folder:photos/My birds.zip`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:60].rstrip("-._")
    return name or "unnamed"


def journal_path(place: Path) -> Path:
    """The file that holds the progress of the run whose record will be at `place`."""
    return place.with_name(f".{place.name}.journal.jsonl")


def write_record(
    out: Path,
    verb: str,
    name: str,
    config: Mapping[str, Any],
    *,
    environment: Mapping[str, Any],
    tables: Mapping[str, Iterable[Row]],
    summary: Mapping[str, Any],
) -> Record:
    """Write a whole record and move it into place; a record of the same configuration is replaced by it.

    Nothing is left behind when writing fails. A process killed in here leaves at most hidden folders, which a
    later write of the same record clears away; a record that stood there before stays, or is found again by
    `find_record`. The run's journal, if it kept one, is removed last.
    """
    place = record_path(out, verb, name, config)
    with _in_the_making(place) as making:
        for table, rows in tables.items():
            _write_table(making / f"{table}.csv", rows)
        for part, content in zip(_PARTS, (config, environment, summary), strict=True):
            _write_bytes(making / f"{part}.json", f"{dumps(content, part, indent=2)}\n".encode())
    journal_path(place).unlink(missing_ok=True)
    return read_record(place)


def put_record(out: Path, verb: str, name: str, files: Mapping[str, bytes]) -> Record:
    """Write a record that was made on another machine, from the files of its folder; as safe as `write_record`."""
    for file in files:
        if not _COMPONENT.fullmatch(file):
            raise BadInputError(f"{file!r} is not the name of a record's file")
    try:
        config = json.loads(files["config.json"])
    except (KeyError, ValueError) as error:
        raise BadInputError(f"a record of {verb} that was sent here has no readable config.json") from error
    place = record_path(out, verb, name, config)
    with _in_the_making(place) as making:
        for file, content in files.items():
            _write_bytes(making / file, content)
    return read_record(place)


def read_record(path: Path) -> Record:
    """The record in the folder `path`."""
    parts = []
    for part in _PARTS:
        file = path / f"{part}.json"
        try:
            parts.append(json.loads(file.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            raise MissingDataError(
                f"{path} is not a run record: it has no {file.name}. A record is a folder such as "
                f"runs/stream/split-mnist/0123456789ab that a cl-cnaps command named when it finished."
            ) from None
        except ValueError as error:
            raise BadInputError(
                f"{file} is not readable JSON ({error}); run the command in its record again"
            ) from None
    return Record(path, *parts)


def readable_record(path: Path) -> Record | None:
    """The record in the folder `path`, or None where there is none or a damaged one."""
    try:
        return read_record(path)
    except (ClCnapsError, OSError):
        return None


def find_record(out: Path, verb: str, name: str, config: Mapping[str, Any]) -> Record | None:
    """The finished record of exactly this configuration, or None; a damaged one is none, and is to be made anew."""
    place = record_path(out, verb, name, config)
    _restore(place)
    return readable_record(place)


def records_under(root: Path) -> Iterator[Record]:
    """Every record in `root` (itself a record, or any folder above some), in the order of their paths."""
    return map(read_record, record_folders(root))


def record_folders(root: Path) -> Iterator[Path]:
    """The folders of the records in `root`, unread."""
    if (root / "summary.json").is_file():
        yield root
        return
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if "summary.json" in files and "config.json" in files:
            below.clear()
            yield Path(folder)


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    making = _hidden(path)
    try:
        with making.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        making.replace(path)
    except BaseException:
        making.unlink(missing_ok=True)
        raise


def _write_table(path: Path, rows: Iterable[Row]) -> None:
    """CSV with the first row's keys as header; floats in their shortest exact form."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer: csv.DictWriter[str] | None = None
        for number, row in enumerate(rows):
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
                writer.writeheader()
            if list(row) != list(writer.fieldnames):
                raise BadInputError(
                    f"row {number} of {path.name} has the columns {list(row)}, not {list(writer.fieldnames)}"
                )
            writer.writerow(row)
        if writer is None:
            raise BadInputError(
                f"{path.name} would have no rows; a record holds the numbers of at least one run"
            )
        file.flush()
        os.fsync(file.fileno())


def _write_bytes(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _in_the_making(place: Path) -> Iterator[Path]:
    """A hidden folder to fill; at the end of the block it is moved to `place`, or deleted if writing failed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _restore(place)
    making = _hidden(place)
    making.mkdir()
    try:
        yield making
        _sync_folder(making)
        read_record(making)
        _move_into_place(making, place)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    _clear_leftovers(place)


def _move_into_place(making: Path, place: Path) -> None:
    """Rename onto `place`. A full folder cannot be renamed over, so the old one steps aside first.

    Killed between the two renames, the old record is under its hidden name and `_restore` puts it back.
    """
    if place.exists():
        _discard(_aside(place))
        place.replace(_aside(place))
    making.replace(place)
    _sync_folder(place.parent)
    _discard(_aside(place))


def _restore(place: Path) -> None:
    """Undo a replacement that was killed between its two renames."""
    if not place.exists() and _aside(place).is_dir():
        _aside(place).replace(place)


def _discard(folder: Path) -> None:
    """Delete a folder under a name that nobody looks for, so that a half-deleted one is never restored."""
    if folder.exists():
        shutil.rmtree(folder.replace(_hidden(folder)), ignore_errors=True)


def _clear_leftovers(place: Path) -> None:
    """Delete what killed writers of this record left. A young folder may belong to a writer still at work."""
    for folder in place.parent.glob(f".{place.name}.*.new"):
        if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _hidden(path: Path) -> Path:
    """A fresh name beside `path` for what is in the making."""
    return path.with_name(f".{path.name.lstrip('.')}.{uuid.uuid4().hex[:8]}.new")


def _aside(place: Path) -> Path:
    return place.with_name(f".{place.name}.old")


def _sync_folder(folder: Path) -> None:
    """Make names in a folder durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
