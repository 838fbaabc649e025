"""Works for engines under test: importable by the processes they start, and light."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cl_cnaps.records.record import record_path, write_record
from cl_cnaps.sweeps.engines import Reply, Task


def task(*arguments: str, out: Path | None = None, have: frozenset[str] = frozenset()) -> Task:
    return Task("tried", arguments, 1, None if out is None else str(out), have)


def act(asked: Task) -> Reply:
    """Does what the arguments say; the reply's record says what was seen."""
    what, *rest = asked.arguments
    if what == "threads":
        return Reply(os.environ["OMP_NUM_THREADS"], "made")
    if what == "fail":
        raise ValueError("it was asked to fail\nand says so at length")
    if what == "die":
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "linger":  # with a child of its own, and a file that says who they are
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(rest[0]).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
    return Reply(f"{what} by {os.getpid()}", "made")


def record(asked: Task) -> Reply:
    """Makes a small record.

    `once:FILE` fails unless FILE is there, and puts it there; `never` always fails; `cut` damages the record.
    """
    name, *how = asked.arguments
    place = record_path(Path(), "tried", name, {"name": name}).as_posix()
    if place in asked.have:
        return Reply(place, "found")
    if asked.look_only:
        return Reply(place, "absent")
    for word in how:
        kind, _, file = word.partition(":")
        if kind == "never" or (kind in ("once", "killed-once") and not Path(file).exists()):
            if file:
                Path(file).touch()
            if kind == "killed-once":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError(f"{name} fails")
    assert asked.out is not None
    made = write_record(
        Path(asked.out),
        "tried",
        name,
        {"name": name},
        environment={},
        tables={"numbers": [{"pid": os.getpid()}]},
        summary={"verb": "tried"},
    )
    if "cut" in how:
        cut_short(made.path)
    return Reply(place, "made", 0.5)


def cut_short(path: Path) -> None:
    """Damage a record, as a full disk or an interrupted copy does."""
    summary = path / "summary.json"
    summary.write_text(summary.read_text()[:5])


def on_a_node(asked: Task) -> Reply:
    """On a Ray cluster: says which node it is on, takes a while, and sends its record back."""
    import ray

    name, folder = asked.arguments
    node = ray.get_runtime_context().get_node_id()
    Path(folder, f"{name}-{node}-{os.getpid()}").touch()
    time.sleep(2)
    with tempfile.TemporaryDirectory() as made:
        reply = record(Task(asked.verb, (name,), 1, made, asked.have))
        files = {path.name: path.read_bytes() for path in (Path(made) / reply.record).iterdir()}
    return Reply(reply.record, "made", 2.0, files)
