from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cl_cnaps.data import atomic
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.records.record import (
    Journal,
    Record,
    config_digest,
    find_record,
    read_record,
    readable_record,
    record_name,
    record_path,
    records_under,
    write_record,
)

CONFIG = {"model": "simple", "runs": 2}


def write(out: Path, marker: int = 0, config: dict[str, Any] = CONFIG, verb: str = "stream") -> Record:
    return write_record(
        out,
        verb,
        "demo",
        config,
        environment={"python": "3"},
        tables={"accuracy": [{"run": 0, "accuracy": 0.1 + 0.2}, {"run": 1, "accuracy": marker}]},
        summary={"verb": verb, "marker": marker},
    )


def test_a_record_reads_back_as_it_was_written(tmp_path: Path) -> None:
    record = write(tmp_path, marker=7)
    assert record.path == tmp_path / "stream" / "demo" / config_digest(CONFIG)[:12]
    again = read_record(record.path)
    assert again == record
    assert (again.verb, again.name, again.summary["marker"]) == ("stream", "demo", 7)
    assert [float(row["accuracy"]) for row in again.table("accuracy")] == [0.1 + 0.2, 7]
    assert sorted(path.name for path in record.path.iterdir()) == [
        "accuracy.csv",
        "config.json",
        "environment.json",
        "summary.json",
    ]


def test_a_record_is_found_by_its_configuration_whatever_the_order_of_keys(tmp_path: Path) -> None:
    assert find_record(tmp_path, "stream", "demo", CONFIG) is None
    record = write(tmp_path)
    found = find_record(tmp_path, "stream", "demo", dict(reversed(CONFIG.items())))
    assert found is not None
    assert found.path == record.path
    assert find_record(tmp_path, "stream", "demo", CONFIG | {"runs": 3}) is None
    (record.path / "summary.json").write_text("{")
    assert find_record(tmp_path, "stream", "demo", CONFIG) is None, "a damaged one is made anew"


@pytest.mark.parametrize("name", ["config.json", "summary.json", "accuracy.csv"])
def test_files_that_were_changed_are_no_record(tmp_path: Path, name: str) -> None:
    record = write(tmp_path, marker=2)
    file = record.path / name
    text = file.read_text()
    assert "2" in text
    file.write_text(text.replace("2", "3"))
    with pytest.raises(BadInputError, match="was changed or damaged after it was written"):
        read_record(record.path)
    assert readable_record(record.path) is None
    file.write_text(text)
    assert read_record(record.path) == record


def test_the_same_configuration_again_replaces_the_record(tmp_path: Path) -> None:
    first = write(tmp_path, marker=1)
    (first.path / "figures").mkdir()
    second = write(tmp_path, marker=2)
    assert second.path == first.path
    assert read_record(second.path).summary["marker"] == 2
    assert not (second.path / "figures").exists()
    assert [path.name for path in second.path.parent.iterdir()] == [second.id]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def rows() -> Iterator[dict[str, int]]:
        yield {"run": 0}
        raise KeyboardInterrupt

    def attempt(**changes: Any) -> None:
        parts: dict[str, Any] = {"environment": {}, "tables": {"t": [{"a": 1}]}, "summary": {}}
        write_record(tmp_path, "stream", "demo", CONFIG, **(parts | changes))

    with pytest.raises(KeyboardInterrupt):
        attempt(tables={"t": rows()})
    with pytest.raises(BadInputError, match=r"summary\.loss is nan"):
        attempt(summary={"loss": float("nan")})
    with pytest.raises(BadInputError, match=r"row 1 of t\.csv has the columns \['b'\]"):
        attempt(tables={"t": [{"a": 1}, {"b": 1}]})
    with pytest.raises(BadInputError, match="no rows"):
        attempt(tables={"t": []})
    assert list((tmp_path / "stream" / "demo").iterdir()) == []


def test_a_run_killed_while_writing_leaves_no_record(tmp_path: Path) -> None:
    script = """
        import sys, time
        from pathlib import Path
        import cl_cnaps.records.record as record

        def rows():
            for run in range(10_000):
                yield {"run": run}
            print("writing", flush=True)
            time.sleep(60)

        record.write_record(Path(sys.argv[1]), "stream", "demo", {"model": "simple", "runs": 2},
                            environment={}, tables={"accuracy": rows()}, summary={})
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "writing\n"
        child.kill()
        child.wait()
    assert find_record(tmp_path, "stream", "demo", CONFIG) is None
    assert list(records_under(tmp_path)) == []
    leftover = list((tmp_path / "stream" / "demo").iterdir())
    assert [path.name[0] for path in leftover] == ["."]

    alive = leftover[0].with_name(f".x.{atomic._machine()}-{os.getpid()}-01234567.partial")
    elsewhere = leftover[0].with_name(".x.0123ab-1-01234567.partial")
    for folder in (alive, elsewhere):
        folder.mkdir()
    atomic.remove_leftovers.cache_clear()
    write(tmp_path)
    assert alive.exists() and elsewhere.exists(), "somebody's work in progress"
    assert [record.summary["marker"] for record in records_under(tmp_path)] == [0]
    assert not leftover[0].exists()


@pytest.mark.parametrize("can_exchange", [True, False])
def test_killed_at_any_moment_of_a_replacement_there_is_the_old_record_or_the_new(
    tmp_path: Path, can_exchange: bool
) -> None:
    """One child per file operation kills itself before its n-th, for n = 1, 2, ... until none is left."""
    script = """
        import os, signal, sys
        from pathlib import Path
        import cl_cnaps.records.record as record
        from cl_cnaps.data import atomic

        out, moment = Path(sys.argv[1]), 0
        if sys.argv[2] == "False":
            atomic.exchange = lambda one, other: False
        def write(marker):
            record.write_record(out / str(moment), "stream", "demo", {"model": "simple", "runs": 2},
                                environment={}, tables={"t": [{"a": 1}]}, summary={"marker": marker})
        def counted(operation):
            def run(*arguments, **options):
                global left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return operation(*arguments, **options)
            return run

        while True:
            left = 10**9
            write("old")
            child = os.fork()
            if child == 0:
                left = moment
                os.fsync = counted(os.fsync)
                Path.replace, Path.mkdir = counted(Path.replace), counted(Path.mkdir)
                Path.rename, atomic.shutil.rmtree = counted(Path.rename), counted(atomic.shutil.rmtree)
                write("new")
                os._exit(0)
            if os.waitpid(child, 0)[1] == 0:
                break
            moment += 1
        print(moment)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), str(can_exchange)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    moments = int(done.stdout)
    assert moments >= 10
    markers = []
    for moment in range(moments):
        record = find_record(tmp_path / str(moment), "stream", "demo", CONFIG)
        assert record is not None, f"no record after a kill at operation {moment}"
        assert record.table("t") == [{"a": "1"}]
        markers.append(record.summary["marker"])
    assert markers == sorted(markers, reverse=True)
    assert set(markers) == {"old", "new"}


def test_a_folder_that_is_no_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"is not a run record: it has no config\.json"):
        read_record(tmp_path)
    record = write(tmp_path)
    (record.path / "summary.json").write_text("{")
    with pytest.raises(BadInputError, match=r"summary\.json: not a JSON file"):
        read_record(record.path)


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "folder:x", "a b"])
def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="becomes a folder"):
        record_path(tmp_path, "stream", name, CONFIG)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("split-mnist", "split-mnist"),
        ("folder:/a b/Ünï.zip", "folder-a-b-n-.zip"),
        ("../..", "unnamed"),
        ("x" * 90, "x" * 60),
    ],
)
def test_record_name_makes_a_folder_name_of_anything(tmp_path: Path, text: str, name: str) -> None:
    assert record_name(text) == name
    record_path(tmp_path, "stream", name, CONFIG)


def test_records_under_finds_all_verbs_and_no_hidden_folder(tmp_path: Path) -> None:
    one, two = write(tmp_path), write(tmp_path, verb="active")
    one.path.with_name(".half").mkdir()
    one.path.with_name(".half").joinpath("summary.json").write_text("{}")
    assert [record.path for record in records_under(tmp_path)] == [two.path, one.path]
    assert [record.path for record in records_under(one.path)] == [one.path]


def test_files_are_standard_json(tmp_path: Path) -> None:
    record = write(tmp_path)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for path in record.path.glob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)


class TestJournal:
    def journal(self, out: Path, *, resume: bool, config: dict[str, Any] = CONFIG) -> Journal:
        return Journal(out, "stream", "demo", config, resume=resume)

    def test_resume_gives_back_what_was_finished(self, tmp_path: Path) -> None:
        unit = {"rows": [{"accuracy": 0.1 + 0.2}], "seconds": 1 / 3}
        returned = self.journal(tmp_path, resume=False).add("run-0", unit)
        assert returned == unit
        assert self.journal(tmp_path, resume=True).finished == {"run-0": unit}

    def test_without_resume_the_past_is_forgotten(self, tmp_path: Path) -> None:
        self.journal(tmp_path, resume=False).add("run-0", 1)
        assert self.journal(tmp_path, resume=False).finished == {}
        assert self.journal(tmp_path, resume=True).finished == {}

    def test_another_configuration_has_another_journal(self, tmp_path: Path) -> None:
        self.journal(tmp_path, resume=False).add("run-0", 1)
        assert self.journal(tmp_path, resume=True, config={"model": "cnaps"}).finished == {}

    def test_a_journal_cut_anywhere_keeps_its_whole_lines_and_goes_on(self, tmp_path: Path) -> None:
        journal = self.journal(tmp_path, resume=False)
        journal.add("run-0", [0.25])
        journal.add("run-1", [0.5])
        content = journal.path.read_bytes()
        for length in range(len(content) + 1):
            journal.path.write_bytes(content[:length])
            resumed = self.journal(tmp_path, resume=True)
            whole = content[:length].count(b"\n")
            assert list(resumed.finished) == ["run-0", "run-1"][: max(whole - 1, 0)]
            resumed.add("later", [1.0])
            assert self.journal(tmp_path, resume=True).finished == {**resumed.finished}
            assert "later" in resumed.finished

    def test_damage_in_the_middle_is_an_error_that_says_what_to_do(self, tmp_path: Path) -> None:
        journal = self.journal(tmp_path, resume=False)
        journal.add("run-0", 1)
        journal.add("run-1", 1)
        lines = journal.path.read_text().splitlines()
        journal.path.write_text("\n".join([lines[0], "###", lines[2]]) + "\n")
        with pytest.raises(BadInputError, match=r"line 2 of .* is damaged .* without --resume"):
            self.journal(tmp_path, resume=True)

    def test_nan_and_repeated_units_are_refused(self, tmp_path: Path) -> None:
        journal = self.journal(tmp_path, resume=False)
        with pytest.raises(BadInputError, match=r"run-0\.accuracy is nan"):
            journal.add("run-0", {"accuracy": float("nan")})
        journal.add("run-0", 1)
        with pytest.raises(BadInputError, match="already holds"):
            journal.add("run-0", 1)

    def test_the_finished_record_removes_it(self, tmp_path: Path) -> None:
        journal = self.journal(tmp_path, resume=False)
        journal.add("run-0", 1)
        assert list(records_under(tmp_path)) == []
        write(tmp_path)
        assert not journal.path.exists()
