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

from cl_cnaps.data import open_source, packed, packing
from cl_cnaps.data.atomic import partial_file, write_text
from cl_cnaps.data.packing import packed_folder
from cl_cnaps.data.registered import register, registered
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


def test_sources_that_are_registered_at_once_are_all_kept(tmp_path: Path) -> None:
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


def test_what_a_killed_process_left_half_packed_is_removed(tmp_path: Path) -> None:
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


def test_a_disk_that_fills_up_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "pets", {"cat": 10})
    results = FORK.SimpleQueue()
    run_all([FORK.Process(target=_fill, args=(folder, results))])
    assert f"{packed_folder()}/pets-64px-" in results.get()
    assert results.get() == str(folder / "x")
    assert list(packed_folder().iterdir()) == []
    assert not [path for path in folder.iterdir() if path.name != "cat"]
