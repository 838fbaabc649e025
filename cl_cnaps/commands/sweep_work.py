"""One run of a sweep, in whatever process or on whatever machine it is given to."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cl_cnaps.commands.sweep_verbs import parse, verb_named
from cl_cnaps.sweeps.engine import Reply, Task


def do(task: Task) -> Reply:
    """Find the record of a run, or make it."""
    import torch

    start = time.perf_counter()
    torch.set_num_threads(task.threads)
    verb = verb_named(task.verb, "sweep")
    prepared = verb.prepare(parse(verb, task.arguments, task.verb))
    record = prepared.place(Path()).as_posix()
    if record in task.have:
        return Reply(record, "found")
    if task.look_only:
        return Reply(record, "absent")
    with _command_line(task):
        if task.out is not None:
            prepared.run(Path(task.out), task.threads)
            return Reply(record, "made", time.perf_counter() - start)
        with tempfile.TemporaryDirectory(prefix="cl-cnaps-sweep-") as folder:
            prepared.run(Path(folder), task.threads)
            files = {path.name: path.read_bytes() for path in (Path(folder) / record).iterdir()}
            return Reply(record, "made", time.perf_counter() - start, files)


@contextmanager
def _command_line(task: Task) -> Iterator[None]:
    """The record's environment names the command that repeats this one run, not the sweep."""
    before = sys.argv
    sys.argv = ["cl-cnaps", task.verb, *task.arguments]
    try:
        yield
    finally:
        sys.argv = before
