"""What a sweep runs, tries again, finds and gives up."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweeps.works import cut_short, record

from cl_cnaps.records.record import records_under
from cl_cnaps.sweeps.engines import LocalEngine
from cl_cnaps.sweeps.sweep import Outcome, PlannedRun, append_failures, sweep


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def swept(out: Path, *runs: tuple[str, ...], workers: int = 2, look_only: bool = False) -> list[Outcome]:
    planned = [PlannedRun(run[0], "tried", run) for run in runs]
    log = append_failures(out / "sweeps" / "test.failures.log")
    with LocalEngine(record, workers, 1) as engine:
        outcomes = list(sweep(planned, engine, out, threads=1, log=log, look_only=look_only))
    return sorted(outcomes, key=lambda outcome: outcome.number)


def test_failed_runs_are_tried_once_more_and_the_others_go_on(tmp_path: Path, out: Path) -> None:
    outcomes = swept(
        out,
        ("bad", "never"),
        ("shaky", f"once:{tmp_path / 'shaky'}"),
        ("killed", f"killed-once:{tmp_path / 'killed'}"),
        ("good",),
    )
    assert [(one.run.words, one.status, one.attempts) for one in outcomes] == [
        ("bad", "failed", 2),
        ("shaky", "made", 2),
        ("killed", "made", 2),
        ("good", "made", 1),
    ]
    assert [one.record is not None for one in outcomes] == [False, True, True, True]
    assert outcomes[0].reason == "RuntimeError: bad fails"
    log = (out / "sweeps" / "test.failures.log").read_text()
    for words in ("bad, attempt 1 of 2", "bad, attempt 2 of 2", "shaky, attempt 1", "SIGKILL", "Traceback"):
        assert words in log
    assert {one.name for one in records_under(out)} == {"shaky", "killed", "good"}
    assert not list(out.rglob(".*"))


def test_what_has_a_record_is_not_run_again(out: Path) -> None:
    (first,) = swept(out, ("good",))
    assert first.record is not None
    pid = first.record.table("numbers")
    looked = swept(out, ("good",), ("new",), look_only=True)
    assert [one.status for one in looked] == ["found", "absent"]
    assert looked[1].path is not None
    assert not looked[1].path.exists()
    again, new = swept(out, ("good",), ("new",), workers=1)
    assert (again.status, new.status) == ("found", "made")
    assert again.record is not None
    assert again.record.table("numbers") == pid
    assert new.path == looked[1].path
    assert not (out / "sweeps").exists()


def test_a_damaged_record_is_made_anew(out: Path) -> None:
    first, _ = swept(out, ("good",), ("other",))
    assert first.path is not None
    cut_short(first.path)
    looked = swept(out, ("good",), ("other",), look_only=True)
    assert [one.status for one in looked] == ["absent", "found"]
    outcomes = swept(out, ("good",), ("other",))
    assert [one.status for one in outcomes] == ["made", "found"]
    assert outcomes[0].record is not None


def test_a_made_record_that_cannot_be_read_is_a_failure_of_its_run(out: Path) -> None:
    bad, good = swept(out, ("bad", "cut"), ("good",), workers=1)
    assert (bad.status, bad.attempts, bad.record) == ("failed", 2, None)
    assert bad.reason is not None
    assert "summary.json: not a JSON file" in bad.reason
    assert good.status == "made"
    assert "bad, attempt 2 of 2\nTraceback" in (out / "sweeps" / "test.failures.log").read_text()
