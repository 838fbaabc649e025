"""Averages over the data sets of Meta-Dataset, in- and out-of-domain, and average ranks among the paper's rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from cl_cnaps.evaluation.ranks import average_rank
from cl_cnaps.results.paper.few_shot import meta_dataset_rows, row_of
from cl_cnaps.results.wording import is_plain

GROUPS = {"in": ("in",), "out": ("out",), "all": ("in", "out")}
"""Average -> the domains of the data sets that it is over."""

_HERE = "here"

Averages = dict[str, dict[str, Any]]


def averages(entries: Sequence[Mapping[str, Any]]) -> Averages:
    """Group -> average accuracy (a fraction) and rank, beside the paper's over the same data sets.

    Ranks are among the paper's rows and this model, on the data sets that are there: the paper's own row gets its
    rank on the same ones. Empty unless every data set has a domain and was evaluated once.
    """
    names = [entry["data_set"] for entry in entries]
    if any(entry["domain"] is None for entry in entries) or len(set(names)) != len(names):
        return {}
    scores: dict[str, dict[str, tuple[float, float]]] = dict(meta_dataset_rows())
    scores[_HERE] = {
        entry["data_set"]: (100 * entry["accuracy"]["mean"], 100 * (entry["accuracy"]["ci95"] or 0.0))
        for entry in entries
    }
    found: Averages = {}
    for group, domains in GROUPS.items():
        members = [entry for entry in entries if entry["domain"] in domains]
        if not members:
            continue
        data_sets = [entry["data_set"] for entry in members]
        theirs = row_of(members[0]["model"]) if is_plain(members[0]) else None
        found[group] = {
            "data_sets": data_sets,
            "accuracy": fmean(entry["accuracy"]["mean"] for entry in members),
            "paper": _paper_average(members, "paper"),
            "paper_imagenet": _paper_average(members, "paper_imagenet"),
            "rank": average_rank(_HERE, data_sets, scores),
            "paper_rank": average_rank(theirs, data_sets, scores) if theirs else None,
            "methods_ranked": len(scores),
        }
    return found


def _paper_average(members: Sequence[Mapping[str, Any]], which: str) -> float | None:
    """Per cent, over the same data sets; None where the paper lacks one of them."""
    figures = [member[which] for member in members]
    return None if any(figure is None for figure in figures) else fmean(figure["mean"] for figure in figures)
