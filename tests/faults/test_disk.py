"""Full disks, folders that cannot be written to, outputs nobody can read: one line, and no finished work is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from faults import tiny

from cl_cnaps.commands.main import main
from cl_cnaps.data.atomic import try_folder
from cl_cnaps.errors import ClCnapsError

VERBS = {
    verb: ["0" if before == "--workers" else word for before, word in zip(["", *words], words, strict=False)]
    for verb, words in tiny.VERBS.items()
    if verb != "sweep"  # whose processes are those of its verb
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("disk")
    tiny.prepare(folder)
    assert tiny.forked([*VERBS["stream"], "--out", "records"], folder).code == 0
    yield folder


def one_line(ended: tiny.Ended) -> str:
    assert ended.code in (1, 120), ended
    assert "Traceback" not in ended.err and "unforeseen" not in ended.err, ended.err
    line = ended.err.splitlines()[-1]
    assert line.startswith("Error: "), ended.err
    assert ended.err.count("Error:") == 1
    return line


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_disk_that_fills_up(folder: Path, verb: str) -> None:
    """A limit on the size of files ends a verb before it begins, or in its midst; without it the verb finishes."""
    for largest in (2000, 4500, 12_000):
        ended = tiny.forked([*VERBS[verb], *out_of(verb, "full")], folder, largest=largest)
        if ended.code:
            assert "File too large" in one_line(ended)
    resume = ["--resume"] if (folder / "full" / verb / "training" / "checkpoint.safetensors").exists() else []
    ended = tiny.forked([*VERBS[verb], *out_of(verb, "full"), *resume], folder)
    assert ended.code == 0, ended.err
    assert not [path for path in folder.rglob("*.partial") if "own" not in path.parts]


def out_of(verb: str, name: str) -> list[str]:
    return (
        ["--out", name] if verb in ("stream", "evaluate", "active", "ablate", "metatrain", "pretrain") else []
    )


@pytest.mark.parametrize("verb", ["stream", "metatrain", "report", "data verify"])
def test_output_that_cannot_be_written(folder: Path, verb: str) -> None:
    words = [*VERBS[verb], *out_of(verb, "silent")]
    if verb == "data convert":
        words[words.index("--out") + 1] = "silent"
    assert one_line(tiny.forked(words, folder, out="/dev/full")) == (
        "Error: standard output cannot be written: No space left on device"
    )


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "--out" in VERBS[verb] or out_of(verb, "x")])
def test_a_folder_that_cannot_be_written_to_is_refused_first(folder: Path, verb: str) -> None:
    (folder / "file").write_text("no folder")
    words = [word if before != "--out" else "file/in/it.safetensors" for before, word in
             zip(["", *VERBS[verb]], VERBS[verb], strict=False)]  # fmt: skip
    ended = tiny.forked([*words, *out_of(verb, "file/in/it")], folder)
    assert "cannot be written to" in one_line(ended)
    assert ended.out == "" and len(ended.err.splitlines()) == 1, "before any work"


def test_a_folder_without_permission(tmp_path: Path, nobody: None) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o555)
    with pytest.raises(ClCnapsError, match=r"runs cannot be written to \(Permission denied\)"):
        try_folder(mine / "runs")
    mine.chmod(0o777)
    try_folder(mine / "runs")
    assert not list(mine.iterdir()), "nothing is left"


def test_the_journal_of_a_run_is_kept(folder: Path) -> None:
    """What was finished when the disk was full is not computed again."""
    words = [*VERBS["stream"], "--out", "kept", "--runs", "60"]
    ended = tiny.forked(words, folder, largest=15_000)
    assert "journal.jsonl cannot be written" in one_line(ended)
    ended = tiny.forked([*words, "--resume"], folder)
    assert ended.code == 0, ended.err
    assert " of 180 steps finished before" in ended.err.splitlines()[0]


def test_a_journal_that_was_changed_is_not_resumed_from(folder: Path) -> None:
    words = [*VERBS["stream"], "--out", "changed", "--runs", "60"]
    assert tiny.forked(words, folder, largest=15_000).code == 1
    (journal,) = (folder / "changed").rglob(".*.journal.jsonl")
    whole = journal.read_bytes()
    journal.write_bytes(whole.replace(b'"accuracy": 0', b'"accuracy": 1', 1))
    assert journal.read_bytes() != whole
    assert "is damaged (its checksum does not fit)" in one_line(tiny.forked([*words, "--resume"], folder))
    journal.write_bytes(whole)
    assert tiny.forked([*words, "--resume"], folder).code == 0


def test_features_on_a_full_disk_end_in_one_line(tmp_path: Path) -> None:
    """They are written to the folder of temporary files, where a map would end the process."""
    from cl_cnaps.features.frozen import empty_table, map_table

    file = tmp_path / "features.npy"
    empty_table(file, 3, 4)
    assert file.stat().st_size < 1024, "only its header: no room is promised that may not be there"
    with file.open("ab") as rows:
        rows.write(np.arange(12, dtype=np.float32).tobytes())
    assert map_table(file).shape == (3, 4)


def pages(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every help page of a command and those below it, and of every listing."""
    yield (*words, "--help")
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from pages(below, (*words, name))
    elif words[-1] == "list":
        yield words
        yield (*words, "--json")


def close_the_pipe() -> None:
    """Let standard output be a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def test_nobody_reads_a_page_or_a_list(folder: Path) -> None:
    shown = [
        *pages(main),
        ("--version",),
        ("weights", "show", "simple-efficientnet-lite0"),
        ("recipes", "show"),
    ]
    assert {("data", "list"), ("weights", "list", "--json"), ("recipes", "list"), ("stream", "--help")} < {
        *shown
    }
    ended = {words: tiny.forked(words, folder, first=close_the_pipe) for words in shown}
    wrong = {words: (one.code, one.err) for words, one in ended.items() if (one.code, one.err) != (141, "")}
    assert not wrong


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_to_a_full_disk(tmp_path: Path, word: str) -> None:
    script = f"{sys.executable} {tiny.ROOT / 'cli.py'} {word} > /dev/full"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=tiny.environment(tmp_path), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (
        1,
        "Error: standard output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("closed", ["stdout", "pipe"])
def test_nobody_reads(tmp_path: Path, closed: str) -> None:
    script = f"exec {sys.executable} {tiny.ROOT / 'cli.py'} recipes show small"
    script = f"{script} >&-" if closed == "stdout" else f"set -o pipefail; ({script}) | true"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=tiny.environment(tmp_path), capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.returncode == (141 if closed == "pipe" else 0)
