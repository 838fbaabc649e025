"""What a long run has finished so far, so that a killed one can go on from there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cl_cnaps.data.atomic import make_folder, naming
from cl_cnaps.errors import BadInputError
from cl_cnaps.records.record import config_digest, journal_path, record_path
from cl_cnaps.records.strict_json import dumps, to_plain


class Journal:
    """Finished units of work (one run of a stream, say), one JSON line each, on disk before `add` returns.

    It is beside the record that the run will write, under a name made from the configuration: only a run of the same
    configuration finds it. Writing that record removes it.

        journal = Journal(out, "stream", name, config, resume=resume)
        for run in range(runs):
            unit = journal.finished.get(f"run-{run}") or journal.add(f"run-{run}", one_run(run))

    A line that a kill cut short is dropped when the journal is opened. Floats come back bit for bit.
    """

    def __init__(self, out: Path, verb: str, name: str, config: Mapping[str, Any], *, resume: bool) -> None:
        """Open the journal of this configuration; without `resume`, forget what an earlier run put there."""
        self.path = journal_path(record_path(out, verb, name, config))
        self.finished: dict[str, Any] = {}
        self._header = {"journal": 1, "config": config_digest(config)}
        if resume and self.path.exists():
            self._read()
        else:
            self.path.unlink(missing_ok=True)

    def add(self, key: str, unit: Any) -> Any:
        """Note that the unit `key` is finished, with its numbers; returns what `finished[key]` is now."""
        if key in self.finished:
            raise BadInputError(f"the journal {self.path} already holds the unit {key!r}")
        plain = to_plain(unit, key)
        lines = [dumps({"key": key, "unit": plain}, key)]
        if not self.path.exists():
            make_folder(self.path.parent)
            lines.insert(0, dumps(self._header, "header"))
        with naming(self.path), self.path.open("ab") as file:
            file.write("".join(line + "\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self.finished[key] = plain
        return plain

    def remove(self) -> None:
        """Forget everything."""
        self.path.unlink(missing_ok=True)
        self.finished.clear()

    def _read(self) -> None:
        content = self.path.read_bytes()
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
                entry = json.loads(line)
                if entry == self._header:  # of two runs that began at once each writes one
                    continue
                if number == 0:
                    raise ValueError("it belongs to another configuration")
                self.finished[entry["key"]] = entry["unit"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise BadInputError(
                    f"cannot resume: line {number + 1} of {self.path} is damaged ({error}). "
                    f"Delete the file, or run without --resume to start again."
                ) from None
