from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results.stream_examples import MEASURED, config, rows, stream_record

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.results.continual import summarise
from cl_cnaps.results.record import write_record
from cl_cnaps.results.streams import read_stream_record, stream_records, stream_summaries, write_stream_record


def test_the_summary_has_one_entry_per_head_with_the_promised_fields(tmp_path: Path) -> None:
    record = stream_record(tmp_path)
    assert [entry["head"] for entry in record.summaries] == ["multi", "single"]
    promised = """model encoding head benchmark backbone adaptation shots queries runs final_accuracy
        forgetting backward_transfer average_incremental_accuracy seconds memory_bytes data_source
        weights_source paper"""
    for entry in record.summaries:
        assert set(promised.split()) <= entry.keys()
        expected = summarise(record.accuracy(entry["head"]))
        assert expected.forgetting is not None
        assert entry["final_accuracy"] == {
            "mean": expected.final_accuracy.mean,
            "ci95": expected.final_accuracy.ci95,
            "per_run": list(expected.final_accuracy.per_run),
        }
        assert (entry["forgetting"], entry["forgetting_ci95"]) == (
            expected.forgetting.mean,
            expected.forgetting.ci95,
        )
    assert record.summaries[1]["paper"]["mean"] == 69.5
    assert json.loads((record.path / "summary.json").read_text())["heads"] == record.summaries


def test_a_record_reads_back_with_every_accuracy_to_the_last_bit(tmp_path: Path) -> None:
    written = stream_record(tmp_path, n_tasks=4)
    again = read_stream_record(written.path)
    assert again == written
    assert again.rows == rows(4, 2, ["multi", "single"])
    assert again.task_names[1] == "classes 2 and 3"
    assert again.accuracy("single").shape == (2, 4, 4)
    assert np.isnan(again.accuracy("single")[:, 0, 1:]).all()
    header = (written.path / "accuracy.csv").read_text().splitlines()[0]
    assert header == "run,step,task,head,accuracy,n_queries"


def test_the_papers_figure_stands_only_beside_its_own_number_of_shots(tmp_path: Path) -> None:
    summaries = stream_summaries(config(shots=10), rows(2, 2, ["single"]), MEASURED)
    assert summaries[0]["paper"] is None


def test_a_single_task_and_a_single_run_give_nulls() -> None:
    (entry,) = stream_summaries(config(runs=1), rows(1, 1, ["single"]), MEASURED)
    assert entry["final_accuracy"]["ci95"] is None
    assert [entry[key] for key in ("forgetting", "backward_transfer", "forgetting_ci95")] == [None] * 3


def test_nan_never_enters_a_record(tmp_path: Path) -> None:
    bad = rows(2, 2, ["single"])
    bad[4] |= {"accuracy": float("nan")}
    with pytest.raises(BadInputError, match=r"run 1, step 1, task 0 \(single head\) is nan"):
        write(tmp_path, config(), bad)
    with pytest.raises(BadInputError, match=r"summary\.heads\[0\]\.seconds is inf"):
        write(tmp_path, config(), rows(2, 2, ["single"]), summary_extra=MEASURED | {"seconds": float("inf")})
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_less_than_was_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="5 runs were asked for, the single head has accuracies of 2"):
        write(tmp_path, config(runs=5), rows(2, 2, ["single"]))
    with pytest.raises(BadInputError, match="config lacks model, backbone"):
        short = {key: value for key, value in config().items() if key not in ("model", "backbone")}
        write(tmp_path, short, rows(2, 2, ["single"]))
    with pytest.raises(BadInputError, match="summary_extra lacks data_source"):
        measured = {key: value for key, value in MEASURED.items() if key != "data_source"}
        write(tmp_path, config(), rows(2, 2, ["single"]), summary_extra=measured)
    with pytest.raises(BadInputError, match="row 0 of the accuracies lacks n_queries"):
        write(
            tmp_path,
            config(),
            [{key: row[key] for key in row if key != "n_queries"} for row in rows(2, 2, ["single"])],
        )
    with pytest.raises(BadInputError, match="2 tasks but 3 task names"):
        write(tmp_path, config(), rows(2, 2, ["single"]), task_names=["a", "b", "c"])
    with pytest.raises(BadInputError, match="summary_extra names forgetting"):
        write(tmp_path, config(), rows(2, 2, ["single"]), summary_extra=MEASURED | {"forgetting": 0.0})
    with pytest.raises(BadInputError, match="no accuracies"):
        write(tmp_path, config(), [])


def test_stream_records_finds_them_below_a_folder_each_once(tmp_path: Path) -> None:
    one, two = stream_record(tmp_path), stream_record(tmp_path, encoding="moving")
    other = write_record(
        tmp_path, "active", "x", {}, environment={}, tables={"t": [{"a": 1}]}, summary={"verb": "active"}
    )
    assert {record.path for record in stream_records([tmp_path, one.path])} == {one.path, two.path}
    with pytest.raises(MissingDataError, match="no stream record and holds none"):
        stream_records([other.path])
    with pytest.raises(BadInputError, match="is a record of 'active'"):
        read_stream_record(other.path)


def write(out: Path, asked: dict[str, Any], found: list[dict[str, Any]], **changes: Any) -> None:
    given: dict[str, Any] = {"task_names": ["a", "b"], "summary_extra": MEASURED, "environment_extra": {}}
    write_stream_record(out, "demo", asked, found, **(given | changes))
