"""The page of active learning: curves for each task and model, and the areas under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cl_cnaps.results.plots.style import OKABE_ITO
from cl_cnaps.results.report.active_entries import STRATEGIES, Curve
from cl_cnaps.results.report.gather import Gathered, record_link
from cl_cnaps.results.report.pages import Page
from cl_cnaps.results.report.table import EMPTY, Cell, Column, Row, Table, accuracy, words
from cl_cnaps.results.report.telling_apart import Named, told_apart
from cl_cnaps.results.wording import count, model_name, percent

SOURCES = {"cifar10": "CIFAR-10", "omniglot": "Omniglot"}
MODELS = ("simple", "transductive")
"""What `fig:active-learning-figure` is of."""
_DECIDED_BY_TASK = (
    "source",
    "strategies",
    "alphabets",
    "classes",
    "data_digest",
    "backbone_digest",
    "model_config",
)


def active_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps active` measured."""
    curves = found.curves
    names = told_apart(
        [Named(c.method, f"{c.task}, {c.strategy}", c.record.config, c.record.id) for c in curves],
        _DECIDED_BY_TASK,
    )
    return Page(
        "active.html",
        "Active learning",
        template="active.html",
        scripts=("choosing.js", "tables.js", "marks.js", "curves.js"),
        content={
            "missing": missing_active(found),
            "table": _areas(curves, names),
            "curves": [_drawn(curve, name) for curve, name in zip(curves, names, strict=True)],
            "notes": list(dict.fromkeys(note for curve in curves for note in curve.notes)),
        },
    )


def missing_active(found: Gathered) -> list[tuple[str, str]]:
    """What the paper's figure shows and no record does, with the command that makes it."""
    present = {(curve.source, curve.model) for curve in found.curves}
    return [
        (f"{model_name(model)} on {title}", f"cl-cnaps active --source {source} --model {model}")
        for source, title in SOURCES.items()
        for model in MODELS
        if (source, model) not in present
    ]


def _areas(curves: Sequence[Curve], names: Sequence[str]) -> Table:
    rows = []
    for curve, name in zip(curves, names, strict=True):
        link = record_link(curve.record)
        first, last = (None if curve.half is None else curve.half[place] for place in (0, -1))
        gain = EMPTY if curve.gain is None else _points(curve.gain, curve.gain_half, link)
        rows.append(
            Row(
                [
                    words(name, link),
                    words(curve.task),
                    words(curve.strategy_name),
                    accuracy(curve.mean[0], first, link),
                    accuracy(curve.mean[-1], last, link),
                    accuracy(curve.area, curve.area_half, link),
                    gain,
                    Cell(f"{curve.labels[0]} to {curve.labels[-1]}", curve.labels[-1]),
                    Cell(count(curve.runs, "run"), curve.runs),
                ]
            )
        )
    columns = [
        Column("model", numeric=False),
        Column("task", numeric=False),
        Column("strategy", numeric=False),
        Column("first accuracy, %"),
        Column("last accuracy, %"),
        Column("area, %"),
        Column("gain over random, points"),
        Column("labels"),
        Column("runs"),
    ]
    return Table("areas", "Areas under the curves", columns, rows)


def _points(mean: float, half: float | None, link: str) -> Cell:
    sign = "+" if mean > 0 else ""
    return Cell(sign + percent(mean, half), 100 * mean, href=link)


def _drawn(curve: Curve, name: str) -> dict[str, Any]:
    """What curves.js draws, in per cent."""
    known = list(STRATEGIES)
    place = known.index(curve.strategy) if curve.strategy in known else len(known)
    return {
        "source": curve.source,
        "task": curve.task,
        "model": name,
        "strategy": curve.strategy_name,
        "colour": OKABE_ITO[(0, 4, 2, 5)[place]],
        "labels": curve.labels,
        "mean": [round(100 * value, 3) for value in curve.mean],
        "half": None if curve.half is None else [round(100 * value, 3) for value in curve.half],
        "href": record_link(curve.record),
    }
