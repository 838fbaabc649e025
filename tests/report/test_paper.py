from __future__ import annotations

import pytest

from cl_cnaps.report.paper import paper_figure, paper_figures

LABEL = "tab:continual-learning-results-table"


@pytest.mark.parametrize(
    ("benchmark", "model", "encoding", "head", "mean", "interval"),
    [
        ("split-mnist", "simple", "first", "single", 69.5, 1.0),
        ("split-mnist", "simple", "moving", "multi", 83.8, 3.2),
        ("split-cifar10", "simple", "averaging", "single", 27.7, 4.3),
        ("split-cifar100", "transductive", "averaging", "multi", 66.8, 0.9),
        ("split-cifar100", "cnaps", "moving", "single", 37.2, 0.6),
        ("split-mnist", "rwalk", None, "single", 82.5, None),
        ("split-mnist", "vcl", None, "multi", 98.5, 0.4),
    ],
)
def test_cells_of_the_table(
    benchmark: str, model: str, encoding: str | None, head: str, mean: float, interval: float | None
) -> None:
    figure = paper_figure(benchmark=benchmark, model=model, encoding=encoding, head=head)
    assert figure is not None
    assert (figure.mean, figure.interval, figure.label, figure.shots) == (mean, interval, LABEL, 100)


def test_cells_the_paper_leaves_empty_are_none() -> None:
    assert paper_figure(benchmark="split-mnist", model="vcl", encoding=None, head="single") is None
    assert paper_figure(benchmark="split-cifar10", model="cnaps", encoding="moving", head="multi") is None
    assert (
        paper_figure(benchmark="split-mnist", model="transductive", encoding="moving", head="multi") is None
    )
    assert paper_figure(benchmark="split-omniglot", model="simple", encoding="first", head="multi") is None


def test_every_filled_cell_is_there_once() -> None:
    figures = paper_figures()
    # Ten rows: three of 4 cells and one of 1 quoted, CNAPS 4, then five CNAPS variants of 6.
    assert len(figures) == 3 * 4 + 1 + 4 + 5 * 6
    assert len({(f.benchmark, f.model, f.encoding, f.head) for f in figures}) == len(figures)
    assert all(0 < figure.mean < 100 for figure in figures)
    # The sum of the table's printed means, per benchmark and head, guards against a mistyped cell.
    sums: dict[tuple[str, str], float] = {}
    for figure in figures:
        key = figure.benchmark, figure.head
        sums[key] = round(sums.get(key, 0) + figure.mean, 1)
    assert sums == {
        ("split-mnist", "multi"): 950.4,
        ("split-mnist", "single"): 406.1,
        ("split-cifar10", "multi"): 428.1,
        ("split-cifar10", "single"): 107.6,
        ("split-cifar100", "multi"): 635.0,
        ("split-cifar100", "single"): 191.3,
    }
