"""Rows of an ablation compared task by task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cl_cnaps.records.record import read_record, record_folders
from cl_cnaps.report.ablation import AblationView
from cl_cnaps.report.generated import ablation_markdown

METRIC = next(record_folders(Path(__file__).parents[2] / "results" / "ablate" / "metric"))


@pytest.fixture(scope="module")
def record() -> AblationView:
    return AblationView(read_record(METRIC))


def test_means_are_those_of_the_rows(record: AblationView) -> None:
    base = next(row for row in record.rows if row["row"] == "mahalanobis")
    found = {one.row: one for one in record.differences()}
    assert record.base == base["title"]
    assert "mahalanobis" not in found
    for row in record.rows:
        if row["row"] in found:
            gap = row["averages"]["all"]["accuracy"] - base["averages"]["all"]["accuracy"]
            assert found[row["row"]].mean == pytest.approx(gap, abs=1e-9)


def test_the_interval_is_of_pairs_of_tasks(record: AblationView) -> None:
    cosine = next(one for one in record.differences() if one.row == "cosine")
    scores: dict[str, dict[str, list[float]]] = {"cosine": {}, "mahalanobis": {}}
    for line in record.record.table("episodes"):
        if line["row"] in scores:
            scores[line["row"]].setdefault(line["data_set"], []).append(float(line["accuracy"]))
    gaps = [np.subtract(a, b) for a, b in zip(*(of.values() for of in scores.values()), strict=True)]
    variance = np.mean([gap.var(ddof=1) / len(gap) for gap in gaps]) / len(gaps)
    assert cosine.half == pytest.approx(1.96 * variance**0.5)
    unpaired = [np.var(one, ddof=1) / len(one) for of in scores.values() for one in of.values()]
    assert cosine.half < 0.5 * 1.96 * sum(unpaired) ** 0.5 / len(gaps)


def test_root_riemannian_differs_nowhere(record: AblationView) -> None:
    root = next(one for one in record.differences() if one.row == "root-riemannian")
    assert (root.mean, root.half) == (0, 0)
    assert "Difference to Squared Mahalanobis on the same tasks" in ablation_markdown(record)
    assert "-0.0" not in ablation_markdown(record)
