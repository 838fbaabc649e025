"""Records of ablations in the shape of the paper's tables: tables, notes, headlines and charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.ablations import GRID_MAX, GRID_MIN, left_out
from cl_cnaps.metrics.curves import RecallPoint, recall_points
from cl_cnaps.metrics.intervals import mean_difference
from cl_cnaps.report.adaptation import has_encodings, modulation_notes, modulation_table
from cl_cnaps.report.few_shot import SEEN_MARK, data_set_notes, data_set_words, paper_average, task_headline
from cl_cnaps.report.labels import adaptation_words, count
from cl_cnaps.report.paper import ablation_rows
from cl_cnaps.report.table import EMPTY, Cell, Column, Table, TableRow, accuracy, printed, signed, words
from cl_cnaps.report.view import Headline, Row, View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASES: Mapping[str, str] = {
    "adaptation": "own",
    "metric": "mahalanobis",
    "gmm": "simple",
    "transduction": "simple",
    "refinement": "none",
    "shots": "simple",
}
"""The row that others are compared with; where the numbers of queries vary there is none."""
PRINTED: Mapping[str, tuple[str, ...]] = {"refinement": ("simple", "none", "free", "2-4", "raw")}
"""Rows of tables, where the ablation has more: those of a grid have a table of their own."""
_TITLES = {
    "adaptation": "the adaptation",
    "metric": "metrics",
    "gmm": "Gaussian mixtures",
    "transduction": "transduction",
    "refinement": "refinement",
    "shots": "class recall against shots",
    "queries": "accuracy against queries",
}
FIGURE_TITLES = {
    "encodings": "Task encodings in two dimensions, coloured by data set",
    "film-distances": "Distance of FiLM between data sets",
    "grid": "Mean accuracy by least and most steps of refinement",
    "recall": "Class recall against shots",
    "queries": "Accuracy against queries",
}
"""By the names of their files."""
_FIGURES = {
    "adaptation": ("encodings", "film-distances"),
    "refinement": ("grid",),
    "shots": ("recall",),
    "queries": ("queries",),
}
_DOMAINS = {"in": "in-domain accuracy, %", "out": "out-of-domain accuracy and averages, %"}
_FROZEN = {
    "transduction": "Without adaptation there is no task encoding: FEOT is Simple CNAPS, and COT Transductive CNAPS.",
    "refinement": "Without adaptation there is no task encoding: No Refinements is Simple CNAPS.",
}


@dataclass(frozen=True)
class Difference:
    """Of a row's accuracy to the base's on the same tasks, averaged over data sets; fractions of 1.

    Tasks differ far more than methods do, so that intervals of two rows overlap where every task agrees on which is
    better.
    """

    row: str
    title: str
    mean: float
    half: float | None
    """Of the 95 % interval over tasks; None where a data set has a single one."""
    by_data_set: Mapping[str, tuple[float, float | None]]
    """Mean and half of its interval."""


@dataclass(frozen=True)
class QueryLine:
    """A row on tasks of one data set and shape."""

    row: str
    """The row's title."""
    tasks: str
    accuracy: Mapping[int, Mapping[str, Any]]
    """By queries of each class: mean and ci95, fractions of 1."""

    @property
    def words(self) -> str:
        """The row and its tasks."""
        return f"{self.row}, {self.tasks}"


class AblationView(View):
    """A record of an ablation: a row for each method, with the results of each data set in it."""

    verb = "ablate"

    @cached_property
    def rows(self) -> list[Row]:
        """One row for each method; accuracies are fractions, the paper's figures per cent."""
        found = []
        for row in self.record.summary["rows"]:
            results = [{**one, **_paper(self.which, row["row"], one)} for one in row["results"]]
            means = {}
            for group, mean in row["averages"].items():
                members = [one for one in results if one["data_set"] in mean["data_sets"]]
                means[group] = {**mean, "paper": paper_average(members, "paper")}
            found.append({**row, "results": results, "averages": means})
        return found

    @property
    def which(self) -> str:
        """The ablation."""
        return str(self.record.summary["name"])

    @property
    def shared(self) -> list[str]:
        """What all rows have in common, in words."""
        row = self.rows[0]
        tasks = f"{count(row['results'][0]['tasks'], 'task')} of each data set"
        title, features = f"ablation of {_TITLES[self.which]}", adaptation_words(row["adaptation"])
        return [title, row["backbone"], features, tasks]

    @property
    def printed_rows(self) -> list[Row]:
        """The rows that the paper's table has: all but the cells of a grid."""
        printed = PRINTED.get(self.which)
        return [row for row in self.rows if printed is None or row["row"] in printed]

    def recall(self, row: str) -> list[dict[str, str]]:
        """Class recall for each data set and number of shots, of one row."""
        return [one for one in self.record.table("recall") if one["row"] == row]

    def recall_by_row(self) -> tuple[list[str], dict[str, dict[str, RecallPoint]]]:
        """The bins of shots in words, and for each row's title its class recall over all data sets by bin."""
        points = {
            row["title"]: {point.words: point for point in recall_points(self.recall(row["row"]))}
            for row in self.rows
        }
        if not all(points.values()):
            raise BadInputError(f"{self.path}: a row has no class recall")
        if not all(math.isfinite(p.recall + p.half) for of in points.values() for p in of.values()):
            raise BadInputError(f"{self.path}: a class recall is no finite number")
        return list(dict.fromkeys(bin_ for of_row in points.values() for bin_ in of_row)), points

    def refinement_grid(self) -> pd.DataFrame:
        """Mean accuracy by least steps (rows) and most steps (columns); NaN where least exceeds most."""
        means = {row["row"]: row["averages"]["all"]["accuracy"] for row in self.rows}
        cells = [[means.get(f"{low}-{high}", np.nan) for high in GRID_MAX] for low in GRID_MIN]
        return pd.DataFrame(cells, index=list(GRID_MIN), columns=list(GRID_MAX))

    def query_lines(self) -> tuple[list[int], list[QueryLine]]:
        """The numbers of queries of each class, and a line for each row, data set and shape of tasks."""
        queries = sorted({one["queries"] for row in self.rows for one in row["results"]})
        lines = []
        for row in self.rows:
            found: dict[str, dict[int, Mapping[str, Any]]] = {}
            for one in row["results"]:
                tasks = f"{data_set_words(one)} {one['shape']}"
                found.setdefault(tasks, {})[one["queries"]] = one["accuracy"]
            lines += [QueryLine(row["title"], tasks, accuracy) for tasks, accuracy in found.items()]
        return queries, lines

    @property
    def base(self) -> str | None:
        """The title of the row that others are compared with, if there is one."""
        key = BASES.get(self.which)
        return next((row["title"] for row in self.rows if row["row"] == key), None)

    def differences(self) -> list[Difference]:
        """Return the difference of every row whose tasks are listed to the base; none without a base."""
        if self.base is None:
            return []
        tasks = pd.DataFrame(self.record.table("episodes")).astype({"accuracy": float})
        rows = tasks.pivot(index=["data_set", "episode"], columns="row", values="accuracy")
        if not np.isfinite(rows.to_numpy()).all():
            raise BadInputError(f"{self.path}: a task lacks a row's accuracy, or it is no finite number")
        found = []
        for row in self.rows:
            if row["row"] != BASES[self.which] and row["row"] in rows:
                gaps = (rows[row["row"]] - rows[BASES[self.which]]).groupby(level="data_set", sort=False)
                each = {str(name): gap.to_numpy() for name, gap in gaps}
                means = {name: mean_difference([gap]) for name, gap in each.items()}
                overall = mean_difference(list(each.values()))
                found.append(Difference(row["row"], row["title"], *overall, means))
        return found

    def notes(self, *, data_sets: bool = True) -> list[str]:
        """Return the notes, most important first; those on each data set may be left out."""
        rows = self.rows
        notes = [_weights(self)]
        if rows[0]["adaptation"] == "none" and self.which in _FROZEN:
            notes.append(_FROZEN[self.which])
        if self.which == "adaptation":
            notes += modulation_notes(self)
        if self.which == "metric":
            notes.append(
                "Root Riemannian decides as squared Mahalanobis does with the same weights; it differs in training. "
                "The paper prints no figures of the other metrics out of domain: tab:results:metric-ablations-2 "
                "repeats -1."
            )
        notes += [
            f"{one.title} is left out: it differs in training alone. Give weights trained so with --weights "
            f"{one.key}=FILE."
            for one in left_out(self.which, [row["row"] for row in rows])
            if one.own_weights
        ]
        about = data_set_notes(rows[0]["results"])
        notes += about if data_sets else [note for note in about if note.startswith("* ")]
        labels = [one["paper"]["label"] for row in rows for one in row["results"] if one["paper"]]
        if labels:
            each = sorted({one for label in labels for one in label.split(", ")})
            notes.append(f"Paper: {', '.join(each)}; averages over the same data sets.")
        if self.missing:
            notes.append(f"Missing: {', '.join(one['title'] for one in self.missing)}.")
        if rows[0]["results"][0]["accuracy"]["ci95"] is not None:
            notes.append("±: 95 % interval, 1.96 std / sqrt(n), over tasks; of recall over classes.")
        return notes

    def own_tables(self, *, data_sets: bool = True) -> list[Table]:
        """The tables of this record; what is shared above the first, the notes below the last."""
        if self.which == "shots":
            tables = [_shots(self), *_differences(self)]
        elif self.which == "queries":
            tables = [_queries(self)]
        elif self.which == "adaptation":
            tables = [modulation_table(self)]
        else:
            rows = self.printed_rows
            tables = [table for domain in _DOMAINS if (table := _domain(self, rows, domain)) is not None]
            tables += _differences(self, PRINTED.get(self.which))
            tables += [_grid(self)] if self.which == "refinement" else []
        tables[0] = replace(tables[0], shared=self.shared)
        tables[-1] = replace(tables[-1], notes=self.notes(data_sets=data_sets))
        return tables

    def headlines(self, trained_on: str = "benchmark") -> list[Headline]:  # noqa: ARG002
        """The mean over data sets of each row, or its data sets and shapes where there is no such mean."""
        lines = []
        for row in self.rows:
            if (mean := row["averages"].get("all")) is None:
                lines += [task_headline(f"{row['title']}: ", one) for one in row["results"]]
                continue
            labels = [one["paper"]["label"] for one in row["results"] if one["paper"]]
            theirs = None
            if mean["paper"] is not None:
                theirs = {"mean": mean["paper"], "interval": None, "label": labels[0]}
            sets = [data_set_words(one) for one in row["results"] if one["data_set"] in mean["data_sets"]]
            mark = SEEN_MARK if any(name.endswith(SEEN_MARK) for name in sets) else ""
            of = f"{row['title']}, {sets[0] if len(sets) == 1 else f'mean of {len(sets)} data sets{mark}'}"
            lines.append(Headline(of, mean["accuracy"], None, theirs))
        return lines

    @classmethod
    def tables(cls, views: Sequence[Self]) -> list[Table]:
        """The tables of each record."""
        return [table for view in views for table in view.own_tables()]

    @property
    def figure_names(self) -> tuple[str, ...]:
        """The names of its figures; none where a table shows it better, or the record lacks what is drawn."""
        if self.which == "adaptation" and not has_encodings(self):
            return ()
        return _FIGURES.get(self.which, ())

    @classmethod
    def figures(cls, views: Sequence[Self]) -> Iterator[tuple[str, Figure]]:
        """Yield the charts of ablations that have some: encodings, the grid, recall against shots, queries."""
        from cl_cnaps.report.plots.few_shot import ablation_figures

        return ablation_figures(views)


def _paper(which: str, key: str, row: Row) -> Row:
    """The cell of the ablation's own table; of a figure there is none to cite."""
    cells = ablation_rows(which).get(key, {})
    figure = cells.get(row["data_set"]) if row["shape"] == "variable" else None
    return {"paper": None if figure is None else {**asdict(figure), "unit": "percent"}}


def _weights(view: AblationView) -> str:
    """Return whose weights the rows have: where the paper trained each anew, this compares them at test time."""
    printed = [row["row"] for row in view.printed_rows]
    sources: dict[str, dict[str, None]] = {}  # the titles in their order, each once
    for row in view.rows:
        title = row["title"] if row["row"] in printed else "the other cells of the grid"
        sources.setdefault(row["weights_source"], {})[title] = None
    if len(sources) == 1:
        whose = f"All rows have the same weights: {next(iter(sources))}."
    else:
        whose = "Weights: " + "; ".join(f"{source} ({', '.join(t)})" for source, t in sources.items()) + "."
    if view.which in ("adaptation", "shots", "queries", "refinement"):
        return whose
    return f"{whose} Rows that share weights differ at test time alone; the paper trained each."


def _table(caption: str, columns: Sequence[Column | str], rows: Sequence[TableRow]) -> Table:
    headers = [one if isinstance(one, Column) else Column(one) for one in columns]
    return Table("", caption, [Column("", numeric=False), *headers], rows)


def _differences(view: AblationView, only: Sequence[str] | None = None) -> list[Table]:
    """Make the table of differences to the row that others are compared with, on the same tasks."""
    found = [one for one in view.differences() if only is None or one.row in only]
    if not found:
        return []
    sets = {one["data_set"]: data_set_words(one) for one in view.rows[0]["results"]}
    rows = []
    for one in found:
        mean, each = signed(one.mean, one.half, view.href), sets if len(sets) > 1 else ()
        cells = (signed(one.by_data_set[name][0], None, view.href) for name in each)
        rows.append(TableRow([words(one.title, view.href), mean, *cells]))
    titles = ["mean", *sets.values()] if len(sets) > 1 else list(sets.values())
    return [_table(f"difference to {view.base} on the same tasks, points", titles, rows)]


def _domain(view: AblationView, rows: Sequence[Row], domain: str) -> Table | None:
    """The data sets of one domain, ours above the paper's; with the averages on the last table."""
    shown = [i for i, one in enumerate(rows[0]["results"]) if one["domain"] == domain]
    if not shown:
        return None
    last = domain == "out" or "out" not in rows[0]["averages"]
    groups = shown_averages(rows[0]["averages"]) if last else []
    columns = [data_set_words(rows[0]["results"][i]) for i in shown] + [f"avg. {group}" for group in groups]
    lines = []
    for row in rows:
        results, means = [row["results"][i] for i in shown], [row["averages"][group] for group in groups]
        ours = [accuracy(one["accuracy"]["mean"], one["accuracy"]["ci95"], view.href) for one in results]
        ours += [accuracy(mean["accuracy"], None, view.href) for mean in means]
        lines.append(TableRow([words(row["title"], view.href), *ours]))
        theirs = [
            printed(one["paper"]["mean"], one["paper"]["interval"]) if one["paper"] else EMPTY
            for one in results
        ]
        theirs += [EMPTY if mean["paper"] is None else printed(mean["paper"]) for mean in means]
        if any(cell is not EMPTY for cell in theirs):
            lines.append(TableRow([words(row["title"]), *theirs], "paper", "paper", below=True))
    return _table(_DOMAINS[domain], [Column(title, chart=True) for title in columns], lines)


def shown_averages(means: Mapping[str, Row]) -> list[str]:
    """Return the groups whose average is one: over two data sets or more, and over others than those before it."""
    shown: dict[tuple[str, ...], str] = {}
    for group, mean in means.items():
        if len(mean["data_sets"]) > 1:
            shown.setdefault(tuple(mean["data_sets"]), group)
    return list(shown.values())


def _grid(view: AblationView) -> Table:
    grid = view.refinement_grid()
    rows = []
    for low, values in zip(grid.index, grid.to_numpy().tolist(), strict=True):
        cells = (EMPTY if np.isnan(v) else accuracy(v, None, view.href) for v in values)
        rows.append(TableRow([Cell(str(low), low), *cells]))
    several = len(view.rows[0]["averages"]["all"]["data_sets"]) > 1
    caption = (
        f"{'mean accuracy over data sets' if several else 'accuracy'}, %, by least (down) and most steps of refinement "
        "(across)"
    )
    return _table(caption, [str(steps) for steps in grid.columns], rows)


def _shots(view: AblationView) -> Table:
    bins, points = view.recall_by_row()
    rows = []
    for title, of in points.items():
        cells = [
            accuracy(of[n].recall / 100, of[n].half / 100, view.href) if n in of else EMPTY for n in bins
        ]
        rows.append(TableRow([words(title, view.href), *cells]))
    return _table("class recall over all data sets, %, by shots of the class", bins, rows)


def _queries(view: AblationView) -> Table:
    queries, lines = view.query_lines()
    none: Mapping[str, Any] = {"mean": None, "ci95": None}
    rows = []
    for line in lines:
        found = [line.accuracy.get(number, none) for number in queries]
        cells = [accuracy(one["mean"], one["ci95"], view.href) for one in found]
        rows.append(TableRow([words(line.words, view.href), *cells]))
    return _table("accuracy, %, by queries of each class", [str(number) for number in queries], rows)
