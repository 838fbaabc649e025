"""Rows of streams: figures of every head, the paper's beside them, and how records are found."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from report.stream_examples import config, rows, stream_record

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.experiments.stream import stream_row
from cl_cnaps.metrics.continual import summarise
from cl_cnaps.records.record import read_record, write_record
from cl_cnaps.report.generated import TABLES
from cl_cnaps.report.labels import percent
from cl_cnaps.report.stream import StreamView


def test_a_row_for_each_head(tmp_path: Path) -> None:
    view = stream_record(tmp_path)
    assert [row["head"] for row in view.rows] == ["multi", "single"]
    promised = """model encoding head benchmark backbone adaptation shots queries runs final_accuracy
        forgetting backward_transfer average_incremental_accuracy seconds memory_bytes data_source
        weights_source paper"""
    for row in view.rows:
        assert set(promised.split()) <= row.keys()
        expected = summarise(view.accuracy(row["head"]), np.full(3, 40))
        final = expected.pop("final_accuracy")
        assert final is not None
        assert row["final_accuracy"] == asdict(final) | {"per_run": list(final.per_run)}
        for name, figure in expected.items():
            assert figure is not None
            assert (row[name], row[f"{name}_ci95"]) == (figure.mean, figure.ci95)
    assert view.rows[1]["paper"]["mean"] == 69.5


def test_accuracies_read_back_to_the_last_bit(tmp_path: Path) -> None:
    view = StreamView(read_record(stream_record(tmp_path, n_tasks=4).path))
    accuracy = view.accuracy("single")
    for row in rows(4, 2, ["multi", "single"]):
        if row["head"] == "single":
            assert accuracy[row["run"], row["step"], row["task"]] == row["accuracy"]
    assert view.task_names[1] == "classes 2 and 3"
    assert accuracy.shape == (2, 4, 4)
    assert np.isnan(accuracy[:, 0, 1:]).all()
    header = (view.path / "accuracy.csv").read_text().splitlines()[0]
    assert header == "run,step,task,head,accuracy,n_queries"


def test_the_paper_only_beside_its_own_shots(tmp_path: Path) -> None:
    assert [row["paper"] for row in stream_record(tmp_path, shots=10).rows] == [None, None]


def test_one_task_and_one_run_give_nulls() -> None:
    row = stream_row(config(runs=1), rows(1, 1, ["single"]), "single")
    assert row["final_accuracy"]["ci95"] is None
    assert [row[key] for key in ("forgetting", "backward_transfer", "forgetting_ci95")] == [None] * 3


def test_bad_accuracies_are_refused() -> None:
    bad = rows(2, 2, ["single"])
    bad[4] |= {"accuracy": float("nan")}
    with pytest.raises(BadInputError, match=r"run 1, step 1, task 0 \(single head\) is nan"):
        stream_row(config(), bad, "single")
    with pytest.raises(BadInputError, match="5 runs are needed, the single head has 2"):
        stream_row(config(runs=5), rows(2, 2, ["single"]), "single")
    with pytest.raises(BadInputError, match="no accuracies"):
        stream_row(config(), [], "single")


def test_records_are_found_each_once(tmp_path: Path) -> None:
    one, two = stream_record(tmp_path), stream_record(tmp_path, encoding="moving")
    other = write_record(
        tmp_path, "active", "x", {}, environment={}, tables={"t": [{"a": 1}]}, summary={"verb": "active"}
    )
    assert {view.path for view in StreamView.under([tmp_path, one.path])} == {one.path, two.path}
    with pytest.raises(MissingDataError, match="no record of `cl-cnaps stream` and holds none"):
        StreamView.under([other.path])


def test_generated_tables_of_sessions_and_domains_say_what_the_records_hold(tmp_path: Path) -> None:
    assert "Not measured yet: `cl-cnaps sweep benchmarks/streams/fscil.toml" in TABLES["fscil-tables"](
        tmp_path
    )
    assert "mixed-domains.toml" in TABLES["domains-tables"](tmp_path)
    for model in ("ncm", "lda"):
        stream_record(tmp_path, 4, benchmark="fscil-cub", model=model, encoding=None, heads=["single"])
    text = TABLES["fscil-tables"](tmp_path)
    assert "| model | 0 | 1 | 2 | 3 | performance drop, points |" in text
    assert text.rstrip().endswith("*Images: made up.*")
    made = [
        stream_record(tmp_path, 3, benchmark="mixed-domains", adaptation="film", encoding=encoding, runs=runs)
        for runs, encoding in ((2, "first"), (3, "moving"))
    ]
    finals = {view.rows[0]["encoding"]: view.rows[1]["final_accuracy"]["mean"] for view in made}
    best = max(finals, key=lambda encoding: finals[encoding])
    lines = TABLES["domains-tables"](tmp_path).splitlines()
    single = [line for line in lines if line.startswith("| single head |")]
    assert f"| Simple CNAPS, {best} | {percent(finals[best])} ±" in single[0]


def test_records_of_other_images_are_not_compared(tmp_path: Path) -> None:
    first, other, same = StreamView.compared(
        [
            stream_record(tmp_path),
            stream_record(tmp_path, seed=1, model="ncm", encoding=None),
            stream_record(tmp_path, model="lda", encoding=None),
        ]
    )
    assert [view.rows[0]["difference"] for view in (first, other)] == [None, None]
    assert same.rows[0]["difference"]["to"] == "Simple CNAPS, frozen features"
