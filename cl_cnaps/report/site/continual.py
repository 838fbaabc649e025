"""The page of continual learning: models against the paper, charts of every step, every measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from cl_cnaps.names import HEADS, PAPER_BENCHMARKS
from cl_cnaps.report.labels import Named, count, distinct_names, model_name, row_name
from cl_cnaps.report.paper import paper_figures
from cl_cnaps.report.plots.panels import Panel, panels_of, shown_steps
from cl_cnaps.report.plots.style import task_colours
from cl_cnaps.report.site.gather import Gathered, Page
from cl_cnaps.report.standings import (
    PAPER_SHOTS,
    caveats,
    folded,
    model_order,
    paper_standings,
    standings,
    standings_table,
    stream_names,
)
from cl_cnaps.report.stream import MEASURES, StreamView, measured
from cl_cnaps.report.table import EMPTY, Cell, Column, Table, TableRow, accuracy, words
from cl_cnaps.report.view import Row

_DECIDED_BY_CHART = (
    *("benchmark", "tasks", "data_digest", "heads", "backbone_digest", "model_config"),
    "encoding",
)


def continual_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps stream` measured."""
    views = sorted(found.streams, key=model_order)
    here = folded(standings(views))
    both = pd.concat([here, paper_standings()], ignore_index=True)
    others = sorted(set(here["benchmark"]) - set(PAPER_BENCHMARKS))
    table = standings_table("final-accuracy", "Final average accuracy, %", both, list(PAPER_BENCHMARKS))
    return Page(
        "continual.html",
        "Continual learning",
        template="continual.html",
        content={
            "table": table,
            "others": standings_table(
                "other-streams", "Other streams: final average accuracy, %", here, others
            )
            if others
            else None,
            "measures": _measures(views),
            "panels": [one for view, name in _charted(views) for one in _panels(view, name)],
            "caveats": caveats(views),
            "notes": _notes(views),
            "experiments": [one for one in found.experiments if one.section == "Continual"],
            "empty": not views,
        },
    )


def _charted(views: Sequence[StreamView]) -> list[tuple[StreamView, str]]:
    """What each stream's model is called above the charts, where its encodings stand side by side."""
    named = []
    for view in views:
        row = view.rows[0]
        adapted = row["encoding"] is not None and row["adaptation"] != "none"
        name = f"{model_name(row['model'])}, adapted features" if adapted else row_name(row)
        shots = "" if row["shots"] == PAPER_SHOTS else f", {count(row['shots'], 'shot')}"
        chart = f"{row['benchmark']}, {row['encoding']}"
        named.append(Named(name + shots, chart, view.record.config, view.record.id))
    return list(zip(views, distinct_names(named, _DECIDED_BY_CHART), strict=True))


def _panels(view: StreamView, name: str) -> list[dict[str, Any]]:
    heads = sorted(panels_of(view), key=lambda panel: _rank(HEADS, panel.row["head"]))
    return [_panel(panel, name, view.href) for panel in heads]


def _rank(order: Sequence[str], value: str) -> int:
    return order.index(value) if value in order else len(order)


def _panel(panel: Panel, name: str, link: str) -> dict[str, Any]:
    """One chart, in per cent."""
    mean, half, (by_step, _) = panel.mean(), panel.half_intervals(), panel.by_step()
    return {
        "benchmark": panel.row["benchmark"],
        "model": name,
        "encoding": panel.row["encoding"],
        "head": panel.row["head"],
        "title": panel.title,
        "outcome": panel.outcome,
        "setting": " · ".join(filter(None, panel.circumstances)),
        "tasks": list(panel.view.task_names),
        "colours": task_colours(panel.n_tasks),
        "steps": [
            {
                "learned": step + 1,
                "average": float(by_step[step]),
                "mean": [float(value) for value in mean[step, : step + 1]],
                "half": None if half is None else [float(value) for value in half[step, : step + 1]],
            }
            for step in shown_steps(panel.n_tasks)
        ],
        "paper": None if panel.row["paper"] is None else {"mean": panel.row["paper"]["mean"]},
        "href": link,
    }


def _measures(views: Sequence[StreamView]) -> Table:
    """A row for each stream and head with all that is measured of it."""
    rows = []
    for view, name in zip(views, stream_names(views), strict=True):
        for row in view.rows:
            about = [words(name, view.href), words(row["benchmark"]), words(row["head"])]
            rows.append(TableRow([*about, *(_measure(row, one, view.href) for one in MEASURES)]))
    columns = [
        *(Column(title, numeric=False) for title in ("model", "benchmark", "head")),
        *(Column(one.title, low_is_best=one.low_is_best) for one in MEASURES.values()),
    ]
    return Table("measures", "Every measure of every stream", columns, rows)


def _measure(row: Row, name: str, link: str) -> Cell:
    mean, half = measured(row, name)
    if mean is not None and MEASURES[name].title.endswith("accuracy, %"):
        return accuracy(mean, half, link)
    return EMPTY if mean is None else Cell(MEASURES[name].words(mean, half), mean)


def _notes(views: Sequence[StreamView]) -> list[str]:
    """What helps to read the numbers."""
    notes = [
        f"Mean accuracy over all tasks after the last one, {PAPER_SHOTS} shots a class unless a row names others. "
        "Ours: ± is the 95 % interval over runs (Student's t).",
        f"The paper's rows are those of its {paper_figures()[0].label}, as printed; its transductive single-head cells "
        "are at chance level, which the README explains under “Differences from the paper and the released code”.",
        "“Any encoding”: moving, first and averaging encodings differ by no more than 0.15 points in any column; the "
        "first is shown. With frozen features they are one and the same.",
    ]
    every: list[Row] = [row for view in views for row in view.rows]
    images = dict.fromkeys((row["benchmark"], row["data_source"]) for row in every)
    notes += [f"Images of {PAPER_BENCHMARKS.get(name, name)}: {source}." for name, source in images]
    notes.append(
        "Seconds are of learning and answering all runs, on whatever machine made the record; embedding that another "
        "run had done before (--keep-features) is not in them."
    )
    return notes
