"""The front page: the main numbers of each section, and which experiments of the paper are there or missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cl_cnaps.names import PAPER_BENCHMARKS
from cl_cnaps.report.few_shot import data_set_words, seen
from cl_cnaps.report.site.ablations import ordered_ablations, title_of
from cl_cnaps.report.site.active import ordered_curves
from cl_cnaps.report.site.continual import stream_names
from cl_cnaps.report.site.coverage import coverage
from cl_cnaps.report.site.few_shot import evaluation_names, evaluation_order
from cl_cnaps.report.site.gather import Gathered
from cl_cnaps.report.view import record_link
from cl_cnaps.report.site.pages import Page
from cl_cnaps.report.table import MISSING, Cell, accuracy
from cl_cnaps.report.labels import count, paper_cell

_HEADLINES = 4
"""Numbers on a card."""
_SEEN = "* Classes that backbone or adaptation were trained on: not to be compared with the paper."

_OTHER = (
    "The paper's model is a ResNet-18 meta-trained on Meta-Dataset; another backbone or other weights, as its row names "
    "them, are not the same experiment."
)


@dataclass(frozen=True)
class Headline:
    """A number on a card, with the paper's where it has one."""

    title: str
    setting: str
    cell: Cell
    paper: str | None = None


@dataclass(frozen=True)
class Card:
    """A section in a few numbers; without any it is shown as missing."""

    title: str
    href: str
    about: str
    headlines: Sequence[Headline]
    more: int = 0
    """How many numbers the section has beside these."""
    note: str = ""


def overview_page(found: Gathered) -> Page:
    """The front page."""
    experiments = coverage(found)
    return Page(
        "index.html",
        "Results",
        template="overview.html",
        scripts=("tables.js",),
        content={
            "cards": _cards(found),
            "experiments": experiments,
            "complete": sum(one.complete for one in experiments),
            "records": count(len(found.records), "record"),
            "newest": max(
                (str(r.environment.get("finished", "")) for r in found.records.values()), default=""
            )[:10],
            "unreadable": len(found.unreadable),
        },
    )


def _cards(found: Gathered) -> list[Card]:
    evaluations = sorted(found.few_shot, key=evaluation_order)
    names = evaluation_names(evaluations)
    first = [(record, name, record.rows[0]) for record, name in zip(evaluations, names, strict=True)]
    curves = ordered_curves(found)
    return [
        Card(
            "Continual learning",
            "continual.html",
            "Simple CNAPS: final accuracy with the single head, %.",
            (streams := _continual_headlines(found)),
            note=_OTHER if any(one.paper for one in streams) else "",
        ),
        Card(
            "Few-shot learning",
            "few-shot.html",
            "Accuracy over many tasks, %.",
            [
                Headline(
                    f"{data_set_words(entry)}, {entry['shape']}",
                    name,
                    _estimate(entry["accuracy"], record_link(record.record)),
                    paper_cell(entry["paper"]) if entry["paper"] else None,
                )
                for record, name, entry in first[:_HEADLINES]
            ],
            max(0, len(first) - _HEADLINES),
            " ".join(
                [_OTHER] * any(entry["paper"] for *_, entry in first[:_HEADLINES])
                + [_SEEN] * any(seen(entry) for *_, entry in first[:_HEADLINES])
            ),
        ),
        Card(
            "Active learning",
            "active.html",
            "Area under the curve of accuracy against labels, %.",
            [
                Headline(
                    f"{curve.task}, {curve.strategy_name}",
                    ", ".join(filter(None, (curve.method, curve.protocol))),
                    accuracy(curve.area, curve.area_half, record_link(curve.record)),
                )
                for curve in curves[:_HEADLINES]
            ],
            max(0, len(curves) - _HEADLINES),
        ),
        Card(
            "Ablations",
            "ablations.html",
            "The same tasks with one part changed.",
            [
                Headline(title_of(one), "", Cell(count(len(one.rows), "row"), href=record_link(one.record)))
                for one in ordered_ablations(found)[:_HEADLINES]
            ],
            max(0, len(found.ablations) - _HEADLINES),
        ),
    ]


def _continual_headlines(found: Gathered) -> list[Headline]:
    """Simple CNAPS on each of the paper's benchmarks: the adapted model with the first encoding, if it is there."""
    headlines = []
    for benchmark, title in PAPER_BENCHMARKS.items():
        mine = [
            (summary["adaptation"] == "none", summary["encoding"] != "first", place, name, summary)
            for place, (stream, name) in enumerate(
                zip(found.streams, stream_names(found.streams), strict=True)
            )
            for summary in stream.read.rows
            if (summary["benchmark"], summary["head"], summary["model"]) == (benchmark, "single", "simple")
        ]
        if mine:
            *_, place, name, summary = min(mine, key=lambda one: one[:3])
            link = record_link(found.streams[place].read.record)
            paper = paper_cell(summary["paper"]) if summary["paper"] else None
            headlines.append(Headline(title, name, _estimate(summary["final_accuracy"], link), paper))
        else:
            headlines.append(Headline(title, "", MISSING))
    return headlines


def _estimate(figure: dict[str, Any], link: str) -> Cell:
    return accuracy(figure["mean"], figure["ci95"], link)
