"""The page of active learning: curves for each task and model, and the areas under them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.names import STRATEGIES
from cl_cnaps.report.active import ActiveView
from cl_cnaps.report.labels import Named, adaptation_words, count, distinct_names, model_name
from cl_cnaps.report.plots.style import strategy_colours
from cl_cnaps.report.site.coverage import ACTIVE_MODELS, ACTIVE_SOURCES, paper_protocol
from cl_cnaps.report.site.gather import Gathered, Page
from cl_cnaps.report.table import EMPTY, Cell, Column, Table, TableRow, accuracy, signed, words
from cl_cnaps.report.view import Row

Curve = tuple[ActiveView, Row]
"""A row of a record: one model and strategy on one task; accuracies are fractions."""
_DECIDED_BY_TASK = (
    *("source", "strategies", "alphabets", "classes", "data_digest", "backbone_digest", "model_config"),
)


def active_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps active` measured."""
    curves = ordered_curves(found)
    named = [
        Named(
            active_method(row), f"{active_task(row)}, {row['strategy']}", view.record.config, view.record.id
        )
        for view, row in curves
    ]
    names = distinct_names(named, _DECIDED_BY_TASK)
    colours = strategy_colours(row["strategy"] for _, row in curves)
    return Page(
        "active.html",
        "Active learning",
        template="active.html",
        content={
            "table": _areas(curves, names),
            "curves": [
                _drawn(curve, name, colours[curve[1]["strategy"]])
                for curve, name in zip(curves, names, strict=True)
            ],
            "notes": list(
                dict.fromkeys(
                    f"{ACTIVE_SOURCES.get(row['source'], row['source'])}: {row['test_classes']}. "
                    f"Images: {row['data_source']}. Seen in pre-training: {row['seen_in_pretraining']}."
                    for _, row in curves
                )
            ),
            "experiments": [one for one in found.experiments if one.section == "Active"],
        },
    )


def active_task(row: Row) -> str:
    """Return source, and alphabet where there is one."""
    source = str(ACTIVE_SOURCES.get(row["source"], row["source"]))
    return source if row["alphabet"] is None else f"{source}, {row['alphabet']}"


def active_method(row: Row) -> str:
    """`Simple CNAPS, frozen features`."""
    return ", ".join(filter(None, (model_name(row["model"]), adaptation_words(row["adaptation"]))))


def ordered_curves(found: Gathered) -> list[Curve]:
    """Task by task, and adapted before frozen features, as in the paper's figure."""
    curves = [(view, row) for view in found.active for row in view.rows]
    tasks = list(dict.fromkeys(active_task(row) for _, row in curves))

    def rank(curve: Curve) -> tuple[int, int, bool]:
        row = curve[1]
        model = ACTIVE_MODELS.index(row["model"]) if row["model"] in ACTIVE_MODELS else len(ACTIVE_MODELS)
        return tasks.index(active_task(row)), model, row["adaptation"] == "none"

    return sorted(curves, key=rank)


def _areas(curves: Sequence[Curve], names: Sequence[str]) -> Table:
    rows = []
    for (view, row), name in zip(curves, names, strict=True):
        means, halves, gain = row["accuracy"]["mean"], row["accuracy"]["ci95"], row["gain"]
        full = paper_protocol(view.record.config, row["source"])
        rows.append(
            TableRow(
                [
                    words(name, view.href),
                    words(active_task(row)),
                    words(STRATEGIES.get(row["strategy"], row["strategy"])),
                    accuracy(means[0], halves[0], view.href),
                    accuracy(means[-1], halves[-1], view.href),
                    accuracy(row["area"], row["area_ci95"], view.href),
                    signed(gain["mean"], gain["ci95"], view.href) if gain else EMPTY,
                    Cell(f"{row['labels'][0]} to {row['labels'][-1]}", row["labels"][-1]),
                    Cell(count(row["runs"], "run"), row["runs"]),
                    EMPTY if full is None else words("paper" if full else "short"),
                ]
            )
        )
    columns = [
        *(Column(title, numeric=False) for title in ("model", "task", "strategy")),
        *(Column(title) for title in ("first accuracy, %", "last accuracy, %", "area, %")),
        *(Column(title) for title in ("gain over random, points", "labels", "runs")),
        Column("protocol", numeric=False),
    ]
    return Table("areas", "Areas under the curves", columns, rows)


def _drawn(curve: Curve, name: str, colour: str) -> dict[str, Any]:
    """What the page's script draws, in per cent."""
    view, row = curve
    labels, mean, half = row["labels"], row["accuracy"]["mean"], row["accuracy"]["ci95"]
    if not labels or not len(labels) == len(mean) == len(half):
        raise BadInputError(
            f"a curve has {len(labels)} numbers of labels, {len(mean)} accuracies and {len(half)} intervals"
        )
    return {
        "source": row["source"],
        "task": active_task(row),
        "chart": name,
        "line": STRATEGIES.get(row["strategy"], row["strategy"]),
        "colour": colour,
        "at": [int(number) for number in labels],
        "mean": [100 * float(value) for value in mean],
        "half": None if None in half else [100 * float(value) for value in half],
        "href": view.href,
    }
