"""Several processes at once: nothing is lost, and readers see the old or the new."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch
from data.pictures import class_folders

from cl_cnaps.data import atomic, open_source, packed, packing
from cl_cnaps.data.atomic import partial_file, write_text
from cl_cnaps.data.packing import packed_folder
from cl_cnaps.data.registry import register, registered
from cl_cnaps.errors import ClCnapsError

FORK = multiprocessing.get_context("fork")


def run_all(processes: list[multiprocessing.context.ForkProcess]) -> None:
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def _register(number: int, root: Path, start: Event) -> None:
    start.wait()
    register(f"set{number}", root, root)


def test_sources_registered_at_once(tmp_path: Path) -> None:
    start = FORK.Event()
    processes = [FORK.Process(target=_register, args=(number, tmp_path, start)) for number in range(8)]
    for process in processes:
        process.start()
    start.set()
    for process in processes:
        process.join(timeout=60)
    assert sorted(registered(tmp_path)) == [f"set{number}" for number in range(8)]


def _rewrite(file: Path, letter: str, end: float) -> None:
    while time.monotonic() < end:
        write_text(file, json.dumps({"content": letter * 5000}))


def _read(file: Path, end: float) -> None:
    while time.monotonic() < end:
        assert len(set(json.loads(file.read_text())["content"])) == 1


def test_readers_see_the_old_or_the_new(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_text(file, '{"content": "a"}')
    end = time.monotonic() + 2
    writers = [FORK.Process(target=_rewrite, args=(file, letter, end)) for letter in "ab"]
    run_all([*writers, *(FORK.Process(target=_read, args=(file, end)) for _ in range(2))])
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def _replace_folder(folder: Path, letter: str, end: float) -> None:
    while time.monotonic() < end:
        _replace_folder_once(folder, letter)


def _read_folder(folder: Path, end: float) -> None:
    while time.monotonic() < end:
        handle = os.open(folder, os.O_RDONLY)  # never missing
        os.close(handle)


def test_folder_is_replaced_in_one_step(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    _replace_folder(folder, "a", time.monotonic() + 0.01)
    end = time.monotonic() + 2
    writers = [FORK.Process(target=_replace_folder, args=(folder, letter, end)) for letter in "ab"]
    run_all([*writers, FORK.Process(target=_read_folder, args=(folder, end))])
    assert (folder / "one").read_text() == (folder / "two").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_folder_is_replaced_by_two_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "exchange", lambda _one, _other: False)
    folder = tmp_path / "record"
    for letter in "ab":
        _replace_folder_once(folder, letter)
        assert (folder / "one").read_text() == letter
    assert [path.name for path in tmp_path.iterdir()] == ["record"]
    folder.rename(tmp_path / ".record.old")  # as a kill between the two leaves it
    atomic.restore(folder)
    assert (folder / "one").read_text() == "b"


def _replace_folder_once(folder: Path, letter: str) -> None:
    with atomic.partial_folder(folder.parent, folder.name) as making:
        for name in ("one", "two"):
            (making / name).write_text(letter)
        atomic.replace_folder(making, folder)


def _half_write(path: Path, started: multiprocessing.SimpleQueue[str]) -> None:
    with partial_file(path) as partial:
        partial.write_text("half")
        started.put(partial.name)
        time.sleep(60)


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    started = FORK.SimpleQueue()
    process = FORK.Process(target=_half_write, args=(tmp_path / "x", started))
    process.start()
    leftover = tmp_path / started.get()
    write_text(tmp_path / "x", "new")
    assert leftover.exists()  # its process is at work
    process.kill()
    process.join(timeout=60)
    (tmp_path / ".x.0123ab-1-0123abcd.partial").write_text("of another machine, at work")
    atomic.remove_leftovers.cache_clear()
    write_text(tmp_path / "x", "newer")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.0123ab-1-0123abcd.partial", "x"]
    os.utime(tmp_path / ".x.0123ab-1-0123abcd.partial", (0, 0))
    atomic.remove_leftovers.cache_clear()
    write_text(tmp_path / "x", "newest")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def _pack(folder: Path, packings: Path) -> None:
    source = open_source(f"folder:{folder}")
    quick = packed(source, 16, progress=lambda _: (packings / str(os.getpid())).touch())
    assert torch.equal(quick.images("all", "cat", [1], 16), source.images("all", "cat", [1], 16))


def test_one_process_packs_and_the_others_wait(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 3, "dog": 3})
    (tmp_path / "packings").mkdir()
    run_all([FORK.Process(target=_pack, args=(folder, tmp_path / "packings")) for _ in range(4)])
    assert len(list((tmp_path / "packings").iterdir())) == 1
    assert len(list(packed_folder().iterdir())) == 1


def test_half_packed_file_is_removed(tmp_path: Path) -> None:
    source = open_source(f"folder:{class_folders(tmp_path / 'pets', {'cat': 3})}")
    packed_folder().mkdir(parents=True)
    leftover = packed_folder() / f".{packing.packed_file(source, 16).name}.0123.partial"
    leftover.write_bytes(b"half")
    packed(source, 16)
    assert not leftover.exists()


def _pack_and_register(folder: Path, root: Path) -> None:
    for number in range(1000):
        register(f"set{number}", folder, root)
        packed(open_source(f"folder:{folder}"), 8 + number % 40)


@pytest.mark.parametrize("seed", range(10))
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(tmp_path: Path, seed: int) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 3, "dog": 3})
    process = FORK.Process(target=_pack_and_register, args=(folder, tmp_path))
    process.start()
    time.sleep(random.Random(seed).uniform(0.01, 0.3))
    process.kill()
    process.join(timeout=60)
    done = sorted(registered(tmp_path))
    assert done == sorted(f"set{number}" for number in range(len(done)))
    source = open_source(f"folder:{folder}")
    for size in range(8, 8 + min(len(done), 40) + 1):
        found = packed(source, size).images("all", "dog", [2, 0], size)
        assert torch.equal(found, source.images("all", "dog", [2, 0], size))
    assert not list(packed_folder().glob("*.partial"))


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, replace = os.fsync, Path.replace

    def noted_sync(handle: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().suffix or 'folder'}")
        sync(handle)

    def noted_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    write_text(tmp_path / "x.json", "{}")
    assert steps == ["sync .partial", "rename", "sync folder"]


def _fill(folder: Path, results: multiprocessing.SimpleQueue[str]) -> None:

    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # a disk that fills up while it is written

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        packed(open_source(f"folder:{folder}"), 64)
    except (OSError, ClCnapsError) as error:
        results.put(f"{getattr(error, 'filename', None)} {error}")
    try:
        with partial_file(folder / "x") as partial:
            partial.write_bytes(bytes(100_000))
    except OSError as error:
        results.put(str(error.filename))


def test_disk_that_fills_up(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 10})
    results = FORK.SimpleQueue()
    run_all([FORK.Process(target=_fill, args=(folder, results))])
    assert f"{packed_folder()}/pets-64px-" in results.get()
    assert results.get() == str(folder / "x")
    assert list(packed_folder().iterdir()) == []
    assert not [path for path in folder.iterdir() if path.name != "cat"]
