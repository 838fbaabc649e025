"""`cl-cnaps stream --model a,b,c`: several models on the same images and features."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cl_cnaps import read_results
from cl_cnaps.commands.main import main
from cl_cnaps.experiments.options import StreamOptions
from cl_cnaps.experiments.stream_models import each_model
from cl_cnaps.metrics.intervals import estimate
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.names import MEASURES
from cl_cnaps.report.stream import session_table
from cl_cnaps.report.table import markdown_table, terminal_table

SMALL = (
    "--backbone",
    "timm:test_resnet",
    "--backbone-weights",
    "random",
    "--image-size",
    "32",
    "--shots",
    "3",
)
SMALL += ("--queries", "4", "--runs", "2")


def stream(out: Path, *more: str) -> Result:
    result = CliRunner().invoke(main, ["stream", *SMALL, "--out", str(out), *more], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def rows(out: Path, *more: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream(out, "--no-plots", "--json", *more).stdout.splitlines()]


def numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("seconds", "record", "difference")}


def test_each_model_has_the_numbers_and_the_record_of_a_run_of_its_own(tmp_path: Path) -> None:
    together = rows(tmp_path / "together", "--model", "simple,ncm,ridge,pixel-ncm")
    assert [row["model"] for row in together[::2]] == ["simple", "ncm", "ridge", "pixel-ncm"]
    for name in ("simple", "ncm", "ridge", "pixel-ncm"):
        alone = rows(tmp_path / "alone", "--model", name)
        mine = [row for row in together if row["model"] == name]
        assert [numbers(row) for row in mine] == [numbers(row) for row in alone]
        assert {Path(row["record"]).name for row in mine} == {Path(row["record"]).name for row in alone}
    found = rows(tmp_path / "together", "--model", "ridge", "--resume")
    assert [row["seconds"] for row in found] == [row["seconds"] for row in together[4:6]]


def test_differences_are_paired_by_run(tmp_path: Path) -> None:
    first, ncm = rows(tmp_path, "--model", "simple,ncm", "--head", "single")
    assert first["difference"] is None
    gaps = np.subtract(ncm["final_accuracy"]["per_run"], first["final_accuracy"]["per_run"])
    expected = estimate(gaps)
    assert ncm["difference"] == {
        "to": "Simple CNAPS, frozen features",
        "of": "final_accuracy",
        "mean": expected.mean,
        "ci95": expected.ci95,
    }


def test_features_are_embedded_once_for_all_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = []
    plain = CnapsModel.embed_folded

    def counted(self: CnapsModel, images: Any, *more: Any) -> Any:
        embedded.append(len(images))
        return plain(self, images, *more)

    monkeypatch.setattr(CnapsModel, "embed_folded", counted)
    for features in ("frozen", "adapted"):
        given = (
            ("--features", features, "--weights", "none")
            if features == "adapted"
            else ("--features", features)
        )
        embedded.clear()
        rows(tmp_path, "--model", "simple", *given)
        alone = sum(embedded)
        embedded.clear()
        rows(tmp_path, "--model", "simple,protonet,ncm,lda,ridge", *given)
        assert sum(embedded) == alone == 2 * 10 * (3 + 4)


def test_a_table_and_a_chart_of_all(tmp_path: Path) -> None:
    three = ("--model", "ncm,lda,simplecil", "--backbone", "resnet18")  # intervals that fit the columns
    assert stream(tmp_path, *three, "--quiet").stdout == ""
    shown = stream(tmp_path, *three, "--resume").stdout
    assert "diff.: final accuracy minus that of NCM, backbone features, in points, run by run" in " ".join(
        shown.split()
    )
    assert max(map(len, shown.split("data:")[0].splitlines())) <= 80
    table = shown[shown.index("single head") : shown.index("multi head")].splitlines()[1:4]
    finals = [float(line.split("features")[1].split("±")[0]) for line in table]
    assert finals == sorted(finals, reverse=True)
    figures = [Path(line.split()[1]) for line in shown.splitlines() if line.startswith("figure:")]
    assert [path.stem for path in figures] == ["comparison", "steps"]
    assert all(path.is_file() for path in figures)


def test_an_option_applies_to_the_models_that_have_it() -> None:
    config = StreamOptions(
        model=("simple", "transductive", "ewc", "ncm"),
        encoding="moving",
        baseline_on="network",
        refine_max=3,
        metric="cosine",
        features="frozen",
    )
    simple, transductive, ewc, ncm = each_model(config)
    assert [one.model for one in (simple, transductive, ewc, ncm)] == ["simple", "transductive", "ewc", "ncm"]
    assert [one.encoding for one in (simple, transductive, ewc, ncm)] == ["moving", "moving", None, None]
    assert [one.baseline_on for one in (simple, transductive, ewc, ncm)] == [None, None, "network", None]
    assert [one.refine_max for one in (simple, transductive, ewc, ncm)] == [None, 3, None, None]
    assert [one.metric for one in (simple, transductive, ewc, ncm)] == ["cosine", None, None, None]
    assert [one.adaptation for one in (simple, transductive, ewc, ncm)] == ["none", "none", None, None]
    assert [one.features for one in (simple, transductive, ewc, ncm)] == [None, None, None, "frozen"]
    (feot, lda) = each_model(StreamOptions(model=("transductive", "lda"), variant="feot"))
    assert (feot.variant, lda.variant) == ("feot", None)
    assert [one.model for one in each_model(StreamOptions(model=("ncm", "ncm")))] == ["ncm"]


def test_encodings_and_models_together(tmp_path: Path) -> None:
    found = rows(
        tmp_path, "--model", "simple,ncm", "--encoding", "all", "--head", "single", "--weights", "none"
    )
    assert [(row["model"], row["encoding"]) for row in found] == [
        ("simple", "moving"),
        ("simple", "first"),
        ("simple", "averaging"),
        ("ncm", None),
    ]


def test_the_columns_of_the_table_are_chosen_and_records_have_all(tmp_path: Path) -> None:
    chosen = ("--model", "lda,ncm", "--metrics", "nll,calibration,learning,forward", "--no-plots")
    shown = stream(tmp_path, *chosen).stdout
    header = next(line for line in shown.splitlines() if line.startswith("model"))
    assert header.split() == ["model", "NLL", "diff.", "ECE", "learn", "FWT"]
    assert "0 by definition" in " ".join(shown.split())
    frame = read_results(tmp_path)
    assert {key for key in MEASURES.values() if key != "final_accuracy"} <= set(frame.columns)
    lda, ncm = frame[frame["model"] == "lda"].iloc[0], frame[frame["model"] == "ncm"].iloc[0]
    assert lda["negative_log_likelihood"] > 0
    assert 0 <= lda["calibration_error"] <= 1
    assert ncm["negative_log_likelihood"] is None
    assert stream_error(tmp_path, "--metrics", "accuracy") == 2


def stream_error(out: Path, *more: str) -> int:
    return CliRunner().invoke(main, ["stream", *SMALL, "--out", str(out), *more]).exit_code


def test_tables_of_sessions_and_domains(tmp_path: Path) -> None:
    shown = stream(
        tmp_path, "--benchmark", "mixed-offline", "--model", "simple,ncm", "--head", "single", "--no-plots"
    )
    assert "A column for each task: its accuracy in % after the last." in " ".join(shown.stdout.split())
    rows_of_it = [
        {
            "benchmark": "fscil-cub",
            "model": model,
            "head": "single",
            "encoding": None,
            "adaptation": "none",
            "backbone": "tiny",
            "shots": "30, then 5",
            "runs": 2,
            "final_accuracy": {"mean": 0.4, "ci95": 0.1},
            "image_accuracy": 0.4,
            "accuracy_by_step": {"mean": [0.7 - 0.03 * i for i in range(11)], "ci95": None},
            "performance_drop": 0.3,
            "base_accuracy": 0.6,
            "novel_accuracy": 0.2,
            "harmonic_accuracy": 0.3,
        }
        for model in ("ncm", "lda")
    ]
    table = session_table(rows_of_it)
    markdown = markdown_table(table)
    assert "| model | 0 | 1 | 2 |" in markdown
    assert "| LDA, backbone features | 70.0 | 67.0 |" in markdown
    assert "| 40.0 | 30.0 |\n" in markdown
    console = Console(width=80, file=io.StringIO())
    console.print(terminal_table(table))
    assert max(map(len, console.file.getvalue().splitlines())) <= 80  # type: ignore[attr-defined]
    assert "…" not in console.file.getvalue()  # type: ignore[attr-defined]
