"""What the README claims of the shipped weights on streams, read off the committed records."""

from __future__ import annotations

from pathlib import Path

import pytest

from cl_cnaps.names import PAPER_BENCHMARKS
from cl_cnaps.report.paper import paper_figures
from cl_cnaps.report.stream import StreamView

EVERY = [
    summary
    for record in StreamView.under([Path(__file__).parents[2] / "results" / "stream"])
    for summary in record.rows
]
SUMMARIES = [summary for summary in EVERY if (summary["model"], summary["encoding"]) == ("simple", "first")]


def measured(benchmark: str, head: str, adaptation: str) -> float:
    """Mean final accuracy in per cent."""
    (found,) = [
        summary
        for summary in SUMMARIES
        if (summary["benchmark"], summary["head"], summary["adaptation"]) == (benchmark, head, adaptation)
    ]
    assert found["runs"] >= 5
    assert found["shots"] == 100
    return 100 * float(found["final_accuracy"]["mean"])


@pytest.mark.parametrize("benchmark", PAPER_BENCHMARKS)
@pytest.mark.parametrize("head", ["single", "multi"])
def test_adapted_is_better_than_frozen_and_than_every_row_of_the_paper(benchmark: str, head: str) -> None:
    adapted = measured(benchmark, head, "film")
    assert adapted > measured(benchmark, head, "none")
    assert adapted > max(f.mean for f in paper_figures() if (f.benchmark, f.head) == (benchmark, head))


def test_the_transductive_single_head_is_like_that_of_simple_cnaps() -> None:
    """As the README says of it where the paper's figures are chance."""

    def single(model: str) -> dict[tuple[str, str], float]:
        return {
            (summary["benchmark"], summary["encoding"]): summary["final_accuracy"]["mean"]
            for summary in EVERY
            if (summary["model"], summary["adaptation"], summary["head"]) == (model, "film", "single")
        }

    simple, transductive = single("simple"), single("transductive")
    assert transductive
    for setting, accuracy in transductive.items():
        assert accuracy == pytest.approx(simple[setting], abs=0.03), setting
