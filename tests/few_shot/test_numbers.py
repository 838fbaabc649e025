"""Means, intervals, ranks, and the paper's tables they stand beside."""

from __future__ import annotations

import math
import tomllib
from importlib import resources

import pytest

from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.evaluation_sets import seen_in_pretraining
from cl_cnaps.few_shot.targets import COLUMNS
from cl_cnaps.metrics.intervals import average_rank, mean_accuracy, rank
from cl_cnaps.report.few_shot import averages
from cl_cnaps.report.paper import few_shot_figure, meta_dataset_rows, row_of


def test_the_interval_is_that_of_the_paper() -> None:
    accuracy = mean_accuracy([0.2, 0.4, 0.6, 0.8])
    assert accuracy.mean == pytest.approx(0.5)
    assert accuracy.ci95 == pytest.approx(1.96 * math.sqrt(0.05) / 2)
    assert mean_accuracy([0.3]).ci95 is None
    with pytest.raises(BadInputError, match="at least one task"):
        mean_accuracy([])


def test_methods_within_their_intervals_share_a_rank() -> None:
    scores = {
        "a": {"x": (60.0, 1.0), "y": (50.0, 1.0)},
        "b": {"x": (59.0, 1.0)},  # 1.0 < sqrt(2) behind a
        "c": {"x": (58.0, 1.0), "y": (52.0, 1.0)},  # 2.0 > sqrt(2) behind a, not behind b
    }
    assert [rank(m, "x", scores) for m in "abc"] == [1, 1, 2]
    assert average_rank("a", ["x", "y"], scores) == 1.5
    assert average_rank("b", ["x", "y"], scores) == 1.0
    assert average_rank("b", ["y"], scores) is None


def test_ranks_are_near_the_papers() -> None:
    table = resources.files("cl_cnaps.report.paper").joinpath("few_shot.toml").read_text(encoding="utf-8")
    printed = {row["name"]: row["ranks"] for row in tomllib.loads(table)["meta-dataset"]}
    rows = meta_dataset_rows()
    groups = [
        [c.name for c in COLUMNS if c.domain == "in"],
        [c.name for c in COLUMNS if c.domain == "out"],
        [c.name for c in COLUMNS],
    ]
    ours = {name: [average_rank(name, group, rows) or 0.0 for group in groups] for name in rows}
    assert [round(r, 1) for r in ours["Transductive CNAPS"]] == [2.1, 1.6, 1.9]
    off = [abs(r - p) for name in rows for r, p in zip(ours[name], printed[name], strict=True)]
    assert sum(off) / len(off) < 0.15


def test_the_papers_cells_are_found() -> None:
    cell = few_shot_figure("omniglot", "variable", "simple")
    assert cell is not None
    assert (cell.mean, cell.interval, cell.label) == (91.7, 0.6, "tab:results:meta-dataset-1 and -2")
    imagenet_only = few_shot_figure("omniglot", "variable", "simple", "imagenet")
    assert imagenet_only is not None
    assert imagenet_only.mean == 62.0
    feti = few_shot_figure("tiered-imagenet", "10-way 5-shot", "transductive", "imagenet")
    assert feti is not None
    assert feti.mean == 80.6
    own = few_shot_figure("mini-imagenet", "5-way 1-shot", "protonet")
    assert own is not None
    assert own.mean == 46.1
    assert few_shot_figure("omniglot", "5-way 1-shot", "simple") is None
    assert few_shot_figure("mini-imagenet", "5-way 3-shot", "simple") is None
    assert few_shot_figure("mnist", "variable", "protonet") is None
    assert len(meta_dataset_rows()) == 12
    assert [row_of(m) for m in ("simple", "cnaps")] == ["Simple CNAPS", "CNAPS"]
    assert {name for row in meta_dataset_rows().values() for name in row} == {c.name for c in COLUMNS}


def entry(data_set: str, domain: str | None, mean: float) -> dict[str, object]:
    paper = few_shot_figure(data_set, "variable", "simple")
    figure = None if paper is None else {"mean": paper.mean}
    return {
        "data_set": data_set,
        "domain": domain,
        "model": "simple",
        "accuracy": {"mean": mean, "ci95": 0.01},
        "paper": figure,
        "paper_imagenet": None,
    }


def test_averages_are_over_the_same_data_sets() -> None:
    rows = [entry("omniglot", "in", 0.99), entry("dtd", "in", 0.1), entry("mnist", "out", 0.5)]
    found = averages(rows)
    assert list(found) == ["in", "all"], "one data set is no average"
    assert averages(rows[:1]) == {}
    assert found["in"]["accuracy"] == pytest.approx(0.545)
    assert found["in"]["paper"] == pytest.approx((91.7 + 67.8) / 2)
    assert found["in"]["paper_imagenet"] is None
    assert found["in"]["rank"] == (1 + 13) / 2  # best on Omniglot, worst on DTD
    assert found["all"]["accuracy"] == pytest.approx((0.99 + 0.1 + 0.5) / 3)
    assert averages([entry("omniglot", None, 0.5)]) == {}


def test_what_the_backbone_has_seen_is_said() -> None:
    supervised = "ImageNet-1k, supervised"
    for name in ("mini-imagenet", "tiered-imagenet", "cifar10", "cifar100", "ilsvrc_2012"):
        assert seen_in_pretraining(name, supervised).seen
    assert not seen_in_pretraining("omniglot", supervised).seen
    assert "not known" in seen_in_pretraining("photos", supervised).words
    assert not seen_in_pretraining("mini-imagenet", "none").seen
    for column in COLUMNS:
        assert "not known" not in seen_in_pretraining(column.name, supervised).words
