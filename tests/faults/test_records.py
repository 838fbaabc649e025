"""Records that are malformed, hostile, replaced or left half-written: listed, named, never missing."""

from __future__ import annotations

import copy
import csv
import json
import multiprocessing
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from faults import tiny

from cl_cnaps.commands.main import main
from cl_cnaps.data import atomic
from cl_cnaps.errors import ClCnapsError, escaped
from cl_cnaps.records.record import find_record, read_record, record_folders, write_record
from cl_cnaps.report.site import gather, showable, write_site

KINDS = ("stream", "evaluate", "active", "ablate")
FORK = multiprocessing.get_context("fork")
BUDGET = 25 * int(os.environ.get("FUZZ_TIMES", "1"))
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 2**70, "", "x", "\x1b[31m", "é" * 300, [], {}, [[]], [None], {"mean": "x"},
)  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of each kind."""
    folder = tmp_path_factory.mktemp("records")
    tiny.prepare(folder)
    for verb in KINDS:
        ended = tiny.forked([*tiny.VERBS[verb], *(["--workers", "0"] if verb != "stream" else [])], folder)
        assert ended.code == 0, ended.err
    for record in record_folders(folder / "runs"):  # what comes after the digest is tried too
        change(record / "environment.json", lambda content: content.pop("files_digest"))
    return folder / "runs"


@pytest.fixture
def bad(tmp_path: Path, records: Path) -> Path:
    """A copy of the stream's record, to be damaged, beside whole ones of all kinds."""
    shutil.copytree(records, tmp_path / "runs")
    (good,) = record_folders(records / "stream")
    return Path(shutil.copytree(good, tmp_path / "runs" / "stream" / "bad" / "0123456789ab"))


def change(file: Path, edit: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


def reported(runs: Path, site: Path) -> tuple[list[Path], str]:
    """Make the site; return the records that it lists as unreadable, and all that it publishes."""
    found = showable(gather([runs]))
    write_site(found, site)
    published = "".join(path.read_text() for path in site.rglob("*") if path.suffix in (".html", ".csv"))
    return [one.path for one in found.unreadable], published


def surrogate(record: Path) -> None:
    (record / "config.json").write_text('{"model": "\\ud800"}')


def long_field(record: Path) -> None:
    with (record / "accuracy.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["x" * 140_000])
    for table in record.glob("*.csv"):
        table.write_text(table.read_text() + "y" * 140_000 + "\n")


def deep(record: Path) -> None:
    (record / "summary.json").write_text('{"rows": ' + "[" * 90_000 + "]" * 90_000 + "}")


def less_deep(record: Path) -> None:
    (record / "environment.json").write_text('{"x": ' + "[" * 700 + "]" * 700 + "}")


def folder_of_csv(record: Path) -> None:
    (record / "x.csv").mkdir()


def not_a_number(record: Path) -> None:
    change(record / "summary.json", lambda content: content.update(seconds=float("nan")))


def digits(record: Path) -> None:
    (record / "summary.json").write_text('{"rows": [], "x": ' + "9" * 6000 + "}")


def pipe(record: Path) -> None:
    (record / "config.json").unlink()
    os.mkfifo(record / "config.json")


def link(record: Path) -> None:
    (record / "secret.csv").symlink_to("/etc/passwd")


def link_of_json(record: Path) -> None:
    secret = record.parent / "secret.json"
    secret.write_text('{"password": "open sesame"}')
    (record / "environment.json").unlink()
    (record / "environment.json").symlink_to(secret)


@pytest.mark.parametrize(
    "damage",
    [surrogate, long_field, deep, less_deep, folder_of_csv, not_a_number, digits, pipe, link, link_of_json],
)
def test_a_report_lists_it_and_plot_names_it(
    bad: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(bad)
    listed, published = reported(tmp_path / "runs", tmp_path / "site")
    assert listed == [bad]
    assert "root:" not in published and "open sesame" not in published
    assert all(f">{kind}<" in published for kind in KINDS)
    result = CliRunner().invoke(main, ["plot", str(bad), "--out", str(tmp_path / "figures")])
    assert result.exit_code == 1, "the record cannot be read"
    assert str(bad) in result.stderr and result.stderr.count("Error:") == 1
    assert "unforeseen" not in result.stderr


def test_a_number_that_was_changed_is_seen(tmp_path: Path) -> None:
    record = write_record(tmp_path, "stream", "demo", CONFIG, environment={}, tables={"t": [{"accuracy": 0.25}]},
                          summary={"verb": "stream"})  # fmt: skip
    table = record.path / "t.csv"
    table.write_text(table.read_text().replace("0.25", "0.75"))
    assert find_record(tmp_path, "stream", "demo", CONFIG) is None
    assert reported(tmp_path, tmp_path / "site")[0] == [record.path]


def test_a_folder_whose_name_is_not_utf8(bad: Path, tmp_path: Path) -> None:
    surrogate(bad)
    renamed = bad.rename(os.fsdecode(os.fsencode(bad.parent) + b"/\xff"))
    listed, published = reported(tmp_path / "runs", tmp_path / "site")
    assert listed == [renamed]
    assert "\\udcff" in published
    assert all(f">{kind}<" in published for kind in KINDS)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_of(item, (*path, key))


def replaced(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    content = copy.deepcopy(content)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return content


@pytest.mark.parametrize("verb", KINDS)
def test_wrong_types_anywhere(records: Path, tmp_path: Path, verb: str) -> None:
    """Any value of a record becomes any other: the site is made, and plot draws it or names the record."""
    luck = random.Random(f"{verb} {os.environ.get('FUZZ_SEED', '0')}")
    (good,) = record_folders(records / verb)
    target = Path(shutil.copytree(good, tmp_path / "runs" / verb / "bad" / "0123456789ab"))
    for number in range(BUDGET):
        part = luck.choice(("summary", "summary", "config", "environment"))
        content = json.loads((good / f"{part}.json").read_text())
        changed = replaced(content, luck.choice(list(paths_of(content))), luck.choice(WRONG))
        (target / f"{part}.json").write_text(json.dumps(changed))
        listed, _ = reported(tmp_path / "runs", tmp_path / "site")
        assert listed in ([], [target])
        if number % 5 == 0:
            words = ["plot", str(target), "--format", "svg", "--out", str(tmp_path / "figures")]
            result = CliRunner().invoke(main, words)
            if result.exit_code:
                assert str(target) in result.stderr or "nothing to draw" in result.stderr, (part, changed)
                assert "unforeseen" not in result.stderr, (part, changed)
        shutil.copy(good / f"{part}.json", target / f"{part}.json")


def test_names_are_shown_and_not_obeyed(bad: Path, tmp_path: Path) -> None:
    hostile = bad.rename(bad.with_name("x\x1b[2J\x1b]0;owned\x07\u202e"))
    (hostile / "summary.json").write_text("{")
    result = CliRunner().invoke(main, ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "site")])
    assert result.exit_code == 0
    assert escaped(str(hostile)) in result.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(result.output + result.stderr)
    (tmp_path / "photos" / "a\x1b[31m").mkdir(parents=True)
    (tmp_path / "photos" / "a\x1b[31m" / "b\x1b[2J.png").write_bytes(b"not an image")
    for words in (
        ["data", "verify", f"folder:{tmp_path / 'photos'}"],
        ["evaluate", f"folder:{tmp_path / 'photos'}"],
    ):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 1
        assert ("\\x1b[" in result.output) == (words[0] == "data")
        assert "\x1b" not in result.output


CONFIG = {"model": "simple"}


def _write(out: Path, marker: int, times: int) -> None:
    for _ in range(times):
        table = [{"marker": marker}] * 20
        write_record(out, "stream", "demo", CONFIG, environment={"marker": marker}, tables={"t": table},
                     summary={"marker": marker})  # fmt: skip
    os._exit(0)


@pytest.mark.parametrize("can_exchange", [True, False])
def test_writers_of_one_record_and_its_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(atomic, "exchange", lambda one, other: False)
    first = write_record(tmp_path, "stream", "demo", CONFIG, environment={"marker": 9}, tables={"t": [{"marker": 9}]},
                         summary={"marker": 9})  # fmt: skip
    writers = [FORK.Process(target=_write, args=(tmp_path, marker, 40)) for marker in range(3)]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        record = read_record(first.path)
        assert record.summary["marker"] == record.environment["marker"], "of one version"
        reads += 1
    assert reads > 10
    assert [writer.exitcode for writer in writers] == [0, 0, 0], "no writer raised"
    assert [path.name for path in first.path.parent.iterdir()] == [first.path.name], "nothing is left"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS and others have calls of their own")
def test_folders_are_exchanged_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert atomic.exchange(tmp_path / "one", tmp_path / "other")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["other"]
    assert not atomic.exchange(tmp_path / "one", tmp_path / "missing")


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    """The next writer in the folder removes it: a checkpoint, a record, a site."""

    def dies() -> None:
        with atomic.partial_file(tmp_path / "checkpoint.safetensors") as file:
            file.write_bytes(b"half")
            with atomic.partial_folder(tmp_path, "site") as folder:
                (folder / "index.html").write_text("half")
                os._exit(1)

    process = FORK.Process(target=dies)
    process.start()
    process.join()
    assert len(list(tmp_path.glob(".*.partial"))) == 2
    atomic.write_text(tmp_path / "checkpoint.safetensors", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_a_report_killed_between_two_renames_is_restored(records: Path, tmp_path: Path) -> None:
    found = showable(gather([records]))
    write_site(found, tmp_path / "site")
    (tmp_path / "site").rename(tmp_path / ".site.old")  # as where folders cannot be exchanged
    with pytest.raises(ClCnapsError):
        gather([tmp_path / "site"])
    write_site(found, tmp_path / "site")
    assert (tmp_path / "site" / "index.html").is_file()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_record_killed_between_two_renames_is_found(tmp_path: Path) -> None:
    record = write_record(
        tmp_path, "stream", "demo", CONFIG, environment={}, tables={"t": [{"a": 1}]}, summary={}
    )
    record.path.rename(record.path.with_name(f".{record.path.name}.old"))
    assert find_record(tmp_path, "stream", "demo", CONFIG) == record
