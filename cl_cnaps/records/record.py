"""Run records: one folder per finished run, with its configuration, environment, raw numbers and summary.

    <out>/<verb>/<name>/<id>/
        config.json        the configuration; the id is a digest of it
        environment.json   versions, hardware, commit, digests of data and weights, seeds, command line; a digest of the
                           other files, which is compared when they are read
        <table>.csv        the raw numbers
        summary.json       what is computed from them
        figures/           drawn from them; may be deleted and drawn again

A record is written under a hidden name beside its own and moved when it is whole and on disk, so a folder with a
record's name is a whole record, whatever was killed and when, and whoever writes the same one at the same time.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import google_crc32c

from cl_cnaps.data.atomic import (
    make_folder,
    naming,
    partial_folder,
    replace_folder,
    restore,
    sync,
    write_bytes,
    write_text,
)
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.paths import read_file, read_json
from cl_cnaps.records.strict_json import canonical, check_plain, dumps, to_plain

_PARTS = ("config", "environment", "summary")
_ID_LENGTH = 12
_TRIES = 20
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
        """What was run: a benchmark, target, source or ablation."""
        return self.path.parent.name

    @property
    def id(self) -> str:
        """Short digest of the configuration."""
        return self.path.name

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the configuration."""
        return config_digest(self.config)

    def table(self, name: str) -> list[dict[str, str]]:
        """The rows of `<name>.csv`, cells as text."""
        path = self.path / f"{name}.csv"
        if not path.is_file():
            raise MissingDataError(f"the record {self.path} has no table {path.name}")
        with foreign(str(path), "not a table"), path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file, strict=True))


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


def journal_path(folder: Path) -> Path:
    """The file that holds the progress of the run whose record will be the folder."""
    return folder.with_name(f".{folder.name}.journal.jsonl")


def _files_digest(folder: Path) -> str:
    """Return the SHA-256 of a record's configuration, tables and summary."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in (".csv", ".json") and file.name != "environment.json" and file.is_file():
            content = read_file(file)
            digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


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
    """Write a whole record and move it to its name; a record of the same configuration is replaced by it.

    Nothing is left behind when writing fails. A process killed in here leaves at most a hidden folder, which the next
    write beside it clears away; a record that was there before stays. The run's journal is removed last.
    """
    target = record_path(out, verb, name, config)
    with _in_the_making(target) as making:
        for table, rows in tables.items():
            _write_table(making / f"{table}.csv", rows)
        for part, content in (("config", config), ("summary", summary)):
            write_text(making / f"{part}.json", f"{dumps(content, part, indent=2)}\n")
        about = {**environment, "files_digest": _files_digest(making)}
        write_text(making / "environment.json", f"{dumps(about, 'environment', indent=2)}\n")
    journal_path(target).unlink(missing_ok=True)
    return read_record(target)


def put_record(out: Path, verb: str, name: str, files: Mapping[str, bytes]) -> Record:
    """Write a record that was made on another machine, from the files of its folder; as safe as `write_record`."""
    for file in files:
        if not _COMPONENT.fullmatch(file):
            raise BadInputError(f"{file!r} is not the name of a record's file")
    try:
        config = json.loads(files["config.json"])
    except (KeyError, ValueError) as error:
        raise BadInputError(f"a record of {verb} that was sent here has no readable config.json") from error
    target = record_path(out, verb, name, config)
    with _in_the_making(target) as making:
        for file, content in files.items():
            write_bytes(making / file, content)
    return read_record(target)


def read_record(path: Path) -> Record:
    """Read the record in the folder `path`; one that is replaced meanwhile is read as it was or as it is now."""
    for _ in range(_TRIES):
        before = _version(path)
        try:
            record = Record(path, *(_read_part(path / f"{part}.json") for part in _PARTS))
            _check_files(path)
            changed = record.environment.get("files_digest", "") not in ("", _files_digest(path))
        except OSError as error:
            if restore(path) or _version(path) != before:
                continue
            if isinstance(error, MissingDataError):
                raise
            raise MissingDataError(
                f"{path} is not a run record: it has no {Path(error.filename).name}. A record is a folder such as "
                f"runs/stream/split-mnist/0123456789ab that a cl-cnaps command named when it finished."
            ) from None
        if _version(path) == before:
            break
    else:
        raise ClCnapsError(f"{path} is replaced all the time by other processes")
    if changed:
        raise BadInputError(f"{path} was changed or damaged after it was written: run its command again")
    if not isinstance(record.summary.get("verb", ""), str):
        raise BadInputError(f"{path / 'summary.json'}: verb is {record.summary['verb']!r}, not text")
    rows = record.summary.get("rows", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInputError(f"{path / 'summary.json'}: rows is not a list of objects")
    return record


def _version(path: Path) -> tuple[int, int] | None:
    """Return what tells a folder from the one that replaces it; numbers of inodes are used again."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _read_part(file: Path) -> dict[str, Any]:
    if file.is_symlink():
        raise BadInputError(f"{file} is a link; the files of a record are its own")
    if not file.exists():
        raise FileNotFoundError(errno.ENOENT, "missing", str(file))
    content = read_json(file)
    if not isinstance(content, dict):
        raise BadInputError(f"{file} holds no JSON object; run the command in its record again")
    check_plain(content, str(file))
    return content


def _check_files(path: Path) -> None:
    """Refuse tables that are links, whose target a report would publish, folders and devices."""
    for entry in os.scandir(path):
        if entry.name.endswith(".csv") and not entry.is_file(follow_symlinks=False):
            raise BadInputError(
                f"{entry.path} is a link or folder, not a table; the files of a record are its own"
            )


def readable_record(path: Path) -> Record | None:
    """The record in the folder `path`, or None where there is none or a damaged one."""
    try:
        return read_record(path)
    except (ClCnapsError, OSError):
        return None


def find_record(out: Path, verb: str, name: str, config: Mapping[str, Any]) -> Record | None:
    """The finished record of exactly this configuration, or None; a damaged one is none, and is to be made anew."""
    return readable_record(record_path(out, verb, name, config))


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


@contextmanager
def _in_the_making(target: Path) -> Iterator[Path]:
    """Yield a hidden folder to fill; at the end of the block it becomes `target`, or is deleted if writing failed."""
    make_folder(target.parent)
    with partial_folder(target.parent, target.name) as making:
        yield making
        sync(making)
        read_record(making)
        replace_folder(making, target)


class Journal:
    """Finished units of work (one run of a stream, say), one JSON line each, on disk before `add` returns.

    It is beside the record that the run will write, under a name made from the configuration: only a run of the same
    configuration finds it. Writing that record removes it.

        journal = Journal(out, "stream", name, config, resume=resume)
        for run in range(runs):
            unit = journal.finished.get(f"run-{run}") or journal.add(f"run-{run}", one_run(run))

    A line that a kill cut short is dropped when the journal is opened, one that does not fit its checksum refuses the
    journal. Floats come back bit for bit.
    """

    def __init__(self, out: Path, verb: str, name: str, config: Mapping[str, Any], *, resume: bool) -> None:
        """Open the journal of this configuration; without `resume`, forget what an earlier run put there."""
        self.path = journal_path(record_path(out, verb, name, config))
        self.finished: dict[str, Any] = {}
        self._header = dumps({"journal": 2, "config": config_digest(config)}, "header").encode()
        if resume and self.path.exists():
            self._read()
        else:
            self.path.unlink(missing_ok=True)

    def add(self, key: str, unit: Any) -> Any:
        """Note that the unit `key` is finished, with its numbers; returns what `finished[key]` is now."""
        if key in self.finished:
            raise BadInputError(f"the journal {self.path} already holds the unit {key!r}")
        plain = to_plain(unit, key)
        line = dumps({"key": key, "unit": plain}, key).encode()
        lines = [b"%08x %s" % (_checksum(line), line)]
        if not self.path.exists():
            make_folder(self.path.parent)
            lines.insert(0, self._header)
        with naming(self.path), self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        self.finished[key] = plain
        return plain

    def remove(self) -> None:
        """Forget everything."""
        self.path.unlink(missing_ok=True)
        self.finished.clear()

    def _read(self) -> None:
        content = read_file(self.path)
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # a line cut short; the next `add` must not be glued to it
            with self.path.open("r+b") as file:
                file.truncate(whole)
        lines = content[:whole].splitlines()
        if not lines:
            self.path.unlink()
            return
        for number, line in enumerate(lines):
            try:
                if line == self._header:  # of two runs that began at once each writes one
                    continue
                if number == 0:
                    raise ValueError("it belongs to another configuration")
                checksum, _, text = line.partition(b" ")
                if int(checksum, 16) != _checksum(text):
                    raise ValueError("its checksum does not fit")
                entry = json.loads(text)
                self.finished[entry["key"]] = entry["unit"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise BadInputError(
                    f"cannot resume: line {number + 1} of {self.path} is damaged ({error}). "
                    f"Delete the file, or run without --resume to start again."
                ) from None


def _checksum(content: bytes) -> int:
    return int(google_crc32c.value(content))
