"""The page of active learning: curves for each task and model, and the areas under them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from cl_cnaps.active.protocol import FIGURE_ALPHABETS
from cl_cnaps.results.plots.style import strategy_colours
from cl_cnaps.results.report.active_entries import SOURCES, Curve
from cl_cnaps.results.report.gather import Gathered, record_link
from cl_cnaps.results.report.pages import Page
from cl_cnaps.results.report.table import EMPTY, Cell, Column, Row, Table, accuracy, words
from cl_cnaps.results.report.telling_apart import Named, told_apart
from cl_cnaps.results.wording import STRATEGIES, adaptation_words, count, model_name, percent

MODELS = ("simple", "transductive")
FEATURES = ("film", "none")
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
    curves = ordered_curves(found)
    names = told_apart(
        [Named(c.method, f"{c.task}, {c.strategy}", c.record.config, c.record.id) for c in curves],
        _DECIDED_BY_TASK,
    )
    colours = strategy_colours(curve.strategy for curve in curves)
    return Page(
        "active.html",
        "Active learning",
        template="active.html",
        scripts=("choosing.js", "tables.js", "marks.js", "curves.js"),
        content={
            "missing": missing_active(found),
            "table": _areas(curves, names),
            "curves": [
                _drawn(curve, name, colours[curve.strategy])
                for curve, name in zip(curves, names, strict=True)
            ],
            "notes": list(dict.fromkeys(note for curve in curves for note in curve.notes)),
        },
    )


def ordered_curves(found: Gathered) -> list[Curve]:
    """Task by task, and adapted before frozen features, as in the paper's figure."""
    tasks = list(dict.fromkeys(curve.task for curve in found.curves))

    def place(curve: Curve) -> tuple[int, int, bool]:
        model = MODELS.index(curve.model) if curve.model in MODELS else len(MODELS)
        return tasks.index(curve.task), model, curve.adaptation == "none"

    return sorted(found.curves, key=place)


def missing_active(found: Gathered) -> list[tuple[str, str]]:
    """What the paper's figure shows and no record does in full, with the command that makes it."""
    missing = []
    for source, title in SOURCES.items():
        for model in MODELS:
            mine = [c for c in found.curves if (c.source, c.model, c.plain) == (source, model, True)]
            states = {kind: _state([c for c in mine if c.adaptation == kind], source) for kind in FEATURES}
            for state in ("", "in part", "short protocol only"):
                if kinds := [kind for kind in FEATURES if states[kind] == state]:
                    both = len(kinds) == len(FEATURES)
                    what = f"{model_name(model)} on {title}" + (
                        "" if both else f", {adaptation_words(kinds[0])}"
                    )
                    command = f"cl-cnaps active --source {source} --model {model} --paper"
                    command += f" --adaptation {'both' if both else kinds[0]}"
                    missing.append((f"{what} ({state})" if state else what, command))
    return missing


def _state(curves: Sequence[Curve], source: str) -> str | None:
    """None if all curves of the figure are there with the paper's protocol; else how much of it is."""
    tasks: Sequence[str | None] = FIGURE_ALPHABETS if source == "omniglot" else (None,)
    there = {(curve.alphabet, curve.strategy) for curve in curves if curve.of_the_paper}
    if there.issuperset(product(tasks, STRATEGIES)):
        return None
    if there:
        return "in part"
    return "short protocol only" if curves else ""


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
                    EMPTY
                    if curve.of_the_paper is None
                    else words("paper" if curve.of_the_paper else "short"),
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
        Column("protocol", numeric=False),
    ]
    return Table("areas", "Areas under the curves", columns, rows)


def _points(mean: float, half: float | None, link: str) -> Cell:
    sign = "+" if mean > 0 and percent(mean) != percent(0.0) else ""
    return Cell(sign + percent(mean, half), 100 * mean, href=link)


def _drawn(curve: Curve, name: str, colour: str) -> dict[str, Any]:
    """What curves.js draws, in per cent."""
    return {
        "source": curve.source,
        "task": curve.task,
        "chart": name,
        "line": curve.strategy_name,
        "colour": colour,
        "at": curve.labels,
        "mean": [100 * value for value in curve.mean],
        "half": None if curve.half is None else [100 * value for value in curve.half],
        "href": record_link(curve.record),
    }
