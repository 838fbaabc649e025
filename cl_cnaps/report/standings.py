"""Final accuracies of streams side by side: ours and the paper's, encodings folded into one row where they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from cl_cnaps.names import CNAPS_MODELS, ENCODINGS, HEADS, PAPER_BENCHMARKS
from cl_cnaps.report.labels import (
    Named,
    count,
    distinct_names,
    is_plain,
    model_name,
    percent,
    row_name,
    row_order,
)
from cl_cnaps.report.paper import paper_figures
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.table import EMPTY, Cell, Column, Kind, Table, TableRow, accuracy, printed, words
from cl_cnaps.report.view import Row

PAPER_SHOTS = paper_figures()[0].shots
UPPER_BOUNDS = ("joint", "joint-probe")
"""Models that see all tasks at once: no rivals."""
ANY_ENCODING = "any encoding"
_AGREE = 0.0015
"""Encodings whose accuracies differ by no more, in every column, are one row."""
_RIVALS = 3
"""Of the short table."""
_DECIDED_BY_BENCHMARK = ("benchmark", "tasks", "data_digest", "heads", "backbone_digest", "model_config")
_DEFAULTS = {
    "covariance": "seen",
    "query_scope": "task",
    "memory_rank": None,
    "shortlist": None,
    "batch": None,
}
"""Of streams; a record made before there was a choice counts as made with it."""
_ORDER = [(benchmark, head) for benchmark in PAPER_BENCHMARKS for head in HEADS]
Key = tuple[str, str]
"""Benchmark and head."""


def stream_names(views: Sequence[StreamView]) -> list[str]:
    """Return what each stream's row is called: other shots than the paper's are always named."""
    named = []
    for view in views:
        row = view.rows[0]
        shots = "" if row["shots"] == PAPER_SHOTS else f", {count(row['shots'], 'shot')}"
        named.append(Named(row_name(row) + shots, row["benchmark"], view.record.config, view.record.id))
    return distinct_names(named, _DECIDED_BY_BENCHMARK)


def standings(views: Sequence[StreamView]) -> pd.DataFrame:
    """Return a line for each stream and head: its label, benchmark, head, mean, half, and what model it is of.

    `base` is the label without the encoding; `family` is the model as a reader thinks of it.
    """
    ordered = sorted(views, key=model_order)
    lines = []
    for view, name in zip(ordered, stream_names(ordered), strict=True):
        for row in view.rows:
            final, encoding = row["final_accuracy"], row["encoding"] if row["adaptation"] != "none" else None
            lines.append(
                {
                    "label": name,
                    "base": name.replace(f", {encoding}", "", 1) if encoding else name,
                    "family": model_name(row["model"]),
                    "kind": "here",
                    "benchmark": row["benchmark"],
                    "head": row["head"],
                    "mean": final["mean"],
                    "half": final["ci95"],
                    "encoding": encoding,
                    "model": row["model"],
                    "adapted": row["adaptation"] != "none",
                    "cnaps": row["encoding"] is not None,
                    "shots": row["shots"],
                    "plain": _is_plain(view, row),
                    "usual": _is_plain(view, row) and row["shots"] == PAPER_SHOTS,
                    "href": view.href,
                }
            )
    return _frame(lines)


def _is_plain(view: StreamView, row: Row) -> bool:
    """Whether a row is of a model as it comes: no setting of it, or of the stream, is changed."""
    config = view.record.config
    return is_plain(row) and all(config.get(key, value) == value for key, value in _DEFAULTS.items())


@cache
def paper_standings() -> pd.DataFrame:
    """Return the paper's table in the same form."""
    lines = []
    for cited in paper_figures():
        name = model_name(cited.model)
        lines.append(
            {
                "label": name + (f", {cited.encoding}" if cited.encoding else ""),
                "base": name,
                "family": name,
                "kind": "paper",
                "benchmark": cited.benchmark,
                "head": cited.head,
                "mean": cited.mean / 100,
                "half": None if cited.interval is None else cited.interval / 100,
                "encoding": cited.encoding,
                "model": cited.model,
                "cnaps": cited.encoding is not None,
            }
        )
    return _frame(lines)


_FIELDS = (
    *("label", "base", "family", "kind", "benchmark", "head", "mean", "half"),
    *("encoding", "model", "adapted", "cnaps", "shots", "plain", "usual", "href"),
)


def _frame(lines: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame(lines, columns=list(_FIELDS))
    return frame.astype(object).where(frame.notna(), None)


def model_order(view: StreamView) -> tuple[tuple[int, str, bool, int], int, str]:
    """Sort key of streams: by model, then the paper's benchmarks in its order."""
    row = view.rows[0]
    known, benchmark = list(PAPER_BENCHMARKS), row["benchmark"]
    return row_order(row), known.index(benchmark) if benchmark in known else len(known), benchmark


def folded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the lines with encodings that agree in every column as one row, and those of each as `each`.

    A column that not all of them have been measured in is no agreement.
    """
    parts = []
    for base, lines in frame.groupby("base", sort=False):
        used = set(lines["encoding"])
        encodings = [one for one in ENCODINGS if one in used]
        if len(encodings) < 2:
            parts.append(lines)
            continue
        cells = lines.groupby(["benchmark", "head"])["mean"].agg(["min", "max", "count"])
        agree = (cells["max"] - cells["min"] <= _AGREE) & (cells["count"] == len(encodings))
        if not agree.all():
            parts.append(lines)
            continue
        chosen = lines.assign(rank=[_rank(one) for one in lines["encoding"]])
        chosen = chosen.sort_values("rank", kind="stable").drop_duplicates(["benchmark", "head"])
        what = ANY_ENCODING if len(encodings) == len(ENCODINGS) else " and ".join(encodings)
        parts += [
            chosen.drop(columns="rank").assign(label=f"{base}, {what}"),
            lines.assign(kind="each"),
        ]
    return pd.concat(parts, ignore_index=True) if parts else frame


def _rank(encoding: str | None) -> int:
    """Return the sort key of encodings that agree: the first is shown, which the paper has for all models."""
    return ("first", "averaging", "moving").index(encoding) if encoding in ENCODINGS else 9


def standings_table(
    table_id: str, caption: str, frame: pd.DataFrame, benchmarks: Sequence[str] | None = None
) -> Table:
    """Make a table of standings: a row for each label, a column for each benchmark and head."""
    found = list(dict.fromkeys(frame["benchmark"]))
    names = list(benchmarks) if benchmarks is not None else found
    columns: list[Key] = [(name, head) for name in names for head in HEADS]
    columns = [one for one in columns if one in _ORDER or _has(frame, one)]
    rows = []
    for (label, kind), lines in frame.groupby(["label", "kind"], sort=False):
        cells = {(line["benchmark"], line["head"]): _cell(line) for line in lines.to_dict("records")}
        if any(one in cells for one in columns):
            of: Kind = lines["kind"].iloc[0]
            shown = [cells.get(one, EMPTY) for one in columns]
            tag = {"paper": "paper", "each": "each"}.get(str(kind))
            rows.append(TableRow([words(str(label)), *shown], of, tag))
    headers = [Column(f"{head} head", PAPER_BENCHMARKS.get(name, name), chart=True) for name, head in columns]
    return Table(table_id, caption, [Column("model", numeric=False), *headers], rows)


def _has(frame: pd.DataFrame, key: Key) -> bool:
    return bool(((frame["benchmark"] == key[0]) & (frame["head"] == key[1])).any())


def _cell(line: Any) -> Cell:
    if line["kind"] == "paper":
        return printed(100 * line["mean"], None if line["half"] is None else 100 * line["half"])
    return accuracy(line["mean"], line["half"], line["href"])


def _single(frame: pd.DataFrame) -> pd.Series:
    """The mean over the paper's benchmarks with the single head, for each label that has all that any has."""
    of = frame[(frame["head"] == "single") & frame["benchmark"].isin(list(PAPER_BENCHMARKS))]
    means = of.astype({"mean": float}).groupby("label", sort=False)["mean"].agg(["count", "mean"])
    best: pd.Series = means.sort_values(["count", "mean"], ascending=False, kind="stable")["mean"]
    return best


def short_standings(views: Sequence[StreamView]) -> pd.DataFrame:
    """Return at most ten rows: each CNAPS model, the best rivals, and the paper's rows of the same models.

    A model is shown with the encoding, or the features, that are best on average with a single head; a model measured
    on fewer benchmarks stands behind those measured on more.
    """
    here = standings(views)
    here = folded(here[here["usual"].eq(True) & here["benchmark"].isin(list(PAPER_BENCHMARKS))])
    here = here[here["kind"] == "here"]
    ours = here[here["cnaps"].eq(True) & here["adapted"].eq(True)]
    rivals = here[here["cnaps"].eq(False) & ~here["model"].isin(UPPER_BOUNDS)]
    labels = _best(ours)
    labels += _best(rivals)[:_RIVALS]
    paper = paper_standings()
    paper = paper[paper["cnaps"].eq(True) & paper["base"].isin([model_name(one) for one in CNAPS_MODELS])]
    cited = _best(paper)[: 10 - len(labels)]
    chosen = [here[here["label"] == label] for label in labels]
    chosen += [paper[paper["label"] == label] for label in cited]
    return pd.concat(chosen, ignore_index=True) if chosen else here


def _best(frame: pd.DataFrame) -> list[str]:
    """Return the best label of each model: CNAPS models in their order, then others best first."""
    family = dict(zip(frame["label"], frame["family"], strict=True))
    best: dict[str, str] = {}
    for label in _single(frame).index:
        best.setdefault(family[label], str(label))
    known = [model_name(one) for one in CNAPS_MODELS]
    return [best[one] for one in dict.fromkeys((*known, *best)) if one in best]


@dataclass(frozen=True)
class Verdict:
    """What learns best on a benchmark with a single head, and by how much."""

    title: str
    label: str
    mean: float
    half: float | None
    href: str | None
    rival: tuple[str, float] | None
    """The best that is no CNAPS model, and its mean; None where nothing was measured."""
    paper: tuple[str, float] | None
    """The paper's best, with its name."""

    @property
    def number(self) -> str:
        """`81.9 ± 1.3`."""
        return percent(self.mean, self.half)


def verdicts(views: Sequence[StreamView]) -> list[Verdict]:
    """Return the best model on each of the paper's benchmarks that was measured."""
    here, paper = folded(standings(views)), paper_standings()
    here = here[here["usual"].eq(True) & (here["kind"] == "here") & ~here["model"].isin(UPPER_BOUNDS)]
    found = []
    for benchmark, title in PAPER_BENCHMARKS.items():
        mine, theirs = (_at(frame, benchmark) for frame in (here, paper))
        if mine:
            best = mine[0]
            rivals = [one for one in mine if not one["cnaps"]]
            found.append(
                Verdict(
                    title,
                    best["label"],
                    best["mean"],
                    best["half"],
                    best["href"],
                    (rivals[0]["label"], rivals[0]["mean"]) if rivals and best["cnaps"] else None,
                    (theirs[0]["label"], theirs[0]["mean"]) if theirs else None,
                )
            )
    return found


def _at(frame: pd.DataFrame, benchmark: str) -> list[dict[str, Any]]:
    """Return the lines of a benchmark with a single head, best first."""
    lines = frame[(frame["benchmark"] == benchmark) & (frame["head"] == "single")]
    found: Any = lines.to_dict("records")
    return sorted(found, key=lambda line: -float(line["mean"]))


def caveats(views: Sequence[StreamView]) -> list[str]:
    """Return what must be known before a number is compared with the paper's: of its benchmarks, if any are there."""
    compared = [view for view in views if view.rows[0]["benchmark"] in PAPER_BENCHMARKS] or views
    trained = {
        row["backbone"]: row["backbone_pretraining"]
        for view in compared
        for row in view.rows
        if row["backbone"] not in (None, "none") and row.get("backbone_pretraining")
    }
    notes = []
    for name, how in trained.items():
        if how == "none":
            notes.append(f"Backbone {name}: not pre-trained.")
        else:
            overlap = (
                " Its classes overlap those of CIFAR-10 and CIFAR-100; the paper's backbone is a ResNet-18 trained on "
                "Meta-Dataset's ImageNet split: the settings differ."
            )
            notes.append(
                f"Backbone {name}: pre-trained on {how}." + (overlap if how.startswith("ImageNet-1k") else "")
            )
    return notes
