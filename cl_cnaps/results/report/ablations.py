"""The page of ablations: for each, its rows as they stand in the record."""

from __future__ import annotations

from cl_cnaps.results.report.gather import Gathered
from cl_cnaps.results.report.pages import Page

KNOWN = {
    "metric": ("Metric", "tab:results:metric-ablations-1 and -2"),
    "model": ("Model", "tab:results:ablations-1 and -2"),
    "refinement": ("Refinement steps", "the appendix"),
}


def ablations_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps ablate` measured."""
    return Page(
        "ablations.html",
        "Ablations",
        template="ablations.html",
        scripts=("choosing.js", "tables.js", "ranking.js"),
        content={
            "missing": missing_ablations(found),
        },
    )


def missing_ablations(found: Gathered) -> list[tuple[str, str]]:
    """The paper's ablations that no record has, with the command that makes each."""
    present = {one.which for one in found.ablations}
    return [
        (f"{title} ({label})", f"cl-cnaps ablate {which}")
        for which, (title, label) in KNOWN.items()
        if which not in present
    ]
