"""Which records a report finds, and what it does with those it cannot read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from report.site.made_up import ablation, active, entry, few_shot
from report.stream_examples import stream_record

from cl_cnaps.errors import MissingDataError
from cl_cnaps.report.site import showable
from cl_cnaps.report.site.gather import gather
from cl_cnaps.report.view import page_name


def test_every_kind_of_record_goes_to_its_section(tmp_path: Path) -> None:
    stream_record(tmp_path)
    few_shot(tmp_path, [entry()])
    active(tmp_path)
    ablation(tmp_path)
    found = gather([tmp_path])
    assert len(found.records) == 4
    assert [len(some) for some in (found.streams, found.few_shot, found.active, found.ablations)] == [1] * 4
    assert not found.unreadable
    assert [row["head"] for row in found.streams[0].rows] == ["multi", "single"]


def test_of_two_records_of_one_configuration_the_first_stays(tmp_path: Path) -> None:
    first = stream_record(tmp_path / "results")
    stream_record(tmp_path / "runs")
    found = gather([tmp_path / "results", tmp_path / "runs"])
    assert [stream.path for stream in found.streams] == [first.path]


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("summary.json", "{", "not a JSON file"),
        ("summary.json", '{"verb": "stream"}', "summary.json has no rows"),
        ("summary.json", "[]", "summary.json holds no JSON object"),
        ("accuracy.csv", "run,step,task,head,accuracy,n_queries\n0,0,0,multi,nan,40\n", "accuracy of run 0"),
    ],
)
def test_a_record_that_cannot_be_read_is_named_and_the_others_stay(
    tmp_path: Path, file: str, content: str, reason: str
) -> None:
    stream_record(tmp_path)
    bad = stream_record(tmp_path, encoding="moving")
    (bad.path / file).write_text(content)
    found = showable(gather([tmp_path]))
    assert len(found.streams) == len(found.records) == 1
    (unreadable,) = found.unreadable
    assert unreadable.path == bad.path
    assert reason in unreadable.reason


def test_a_number_that_is_none_reaches_no_table(tmp_path: Path) -> None:
    record = few_shot(tmp_path, [entry()])
    summary = json.loads((record.path / "summary.json").read_text())
    summary["rows"][0]["accuracy"]["mean"] = float("nan")
    (record.path / "summary.json").write_text(json.dumps(summary))
    found = gather([tmp_path])
    assert not found.few_shot
    assert "summary.json: rows[0].accuracy.mean is nan" in found.unreadable[0].reason


def test_a_record_of_another_verb_is_listed(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    summary = json.loads((record.path / "summary.json").read_text()) | {"verb": "bench"}
    (record.path / "summary.json").write_text(json.dumps(summary))
    found = gather([tmp_path])
    assert len(found.records) == 1
    assert not found.streams


def test_pages_have_safe_names_whatever_a_folder_is_called(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    odd = tmp_path / "a & <b>" / "..x" / "y z"
    shutil.copytree(record.path, odd)
    summary = json.loads((odd / "summary.json").read_text()) | {"name": "../../<etc>"}
    (odd / "summary.json").write_text(json.dumps(summary))
    (name,) = gather([odd]).records
    assert name == f"stream-etc-{record.record.id}"
    assert page_name(record.record) == f"stream-split-mnist-{record.record.id}"


def test_a_folder_without_records_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="no run record and holds none"):
        gather([tmp_path])
