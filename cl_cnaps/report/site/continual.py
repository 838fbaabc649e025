"""The page of continual learning: the paper's table with ours above it, the charts, every measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cl_cnaps.names import CNAPS_MODELS, ENCODINGS, HEADS, PAPER_BENCHMARKS
from cl_cnaps.report.paper import paper_figures
from cl_cnaps.report.plots.bars import shown_steps
from cl_cnaps.report.plots.panel import Panel
from cl_cnaps.report.plots.style import task_colours
from cl_cnaps.report.site.gather import Gathered, Stream
from cl_cnaps.report.view import record_link
from cl_cnaps.report.site.pages import Page
from cl_cnaps.report.table import (
    EMPTY,
    MISSING,
    Cell,
    Column,
    TableRow,
    Table,
    accuracy,
    number,
    printed,
    words,
)
from cl_cnaps.report.labels import (
    Named,
    count,
    distinct_names,
    model_name,
    row_name,
    row_order,
)
from cl_cnaps.report.stream import MEASURES, measured
from cl_cnaps.report.view import Row

_DECIDED_BY_BENCHMARK = ("benchmark", "tasks", "data_digest", "heads", "backbone_digest", "model_config")
PAPER_SHOTS = paper_figures()[0].shots


def continual_page(found: Gathered) -> Page:
    """Everything that `cl-cnaps stream` measured."""
    streams = sorted(found.streams, key=_order)
    names = stream_names(streams)
    return Page(
        "continual.html",
        "Continual learning",
        template="continual.html",
        scripts=("choosing.js", "tables.js", "marks.js", "ranking.js", "bars.js"),
        content={
            "table": _table(streams, names),
            "measures": _measures(streams, names),
            "panels": _panels(streams),
            "notes": _notes(streams),
            "empty": not streams,
        },
    )


def stream_names(streams: Sequence[Stream]) -> list[str]:
    """What each stream's row is called: other shots than the paper's are always named."""
    named = []
    for stream in streams:
        summary, record = stream.panels[0].summary, stream.read.record
        name = row_name(summary) + _other_shots(summary)
        named.append(Named(name, summary["benchmark"], record.config, record.id))
    return distinct_names(named, _DECIDED_BY_BENCHMARK)


def _chart_names(streams: Sequence[Stream]) -> list[str]:
    """What each stream's model is called above the charts, where its encodings stand side by side."""
    named = []
    for stream in streams:
        summary, record = stream.panels[0].summary, stream.read.record
        adapted = summary["encoding"] is not None and summary["adaptation"] != "none"
        name = f"{model_name(summary['model'])}, adapted features" if adapted else row_name(summary)
        place = f"{summary['benchmark']}, {summary['encoding']}"
        named.append(Named(name + _other_shots(summary), place, record.config, record.id))
    return distinct_names(named, (*_DECIDED_BY_BENCHMARK, "encoding"))


def _other_shots(summary: Row) -> str:
    return "" if summary["shots"] == PAPER_SHOTS else f", {count(summary['shots'], 'shot')}"


def _table(streams: Sequence[Stream], names: Sequence[str]) -> Table:
    """Rows measured here, rows that are missing, the paper's rows; a column for each benchmark and head."""
    others = {stream.panels[0].summary["benchmark"] for stream in streams} - PAPER_BENCHMARKS.keys()
    titles = dict(PAPER_BENCHMARKS) | {name: name for name in sorted(others)}
    columns = [(benchmark, head) for benchmark in titles for head in HEADS]
    here: dict[str, dict[tuple[str, str], Cell]] = {}
    for stream, name in zip(streams, names, strict=True):
        link = record_link(stream.read.record)
        for summary in stream.read.rows:
            final = summary["final_accuracy"]
            cell = accuracy(final["mean"], final["ci95"], link)
            here.setdefault(name, {})[summary["benchmark"], summary["head"]] = cell
    rows = [
        TableRow([words(name), *(cells.get(c, EMPTY if c[0] in others else MISSING) for c in columns)])
        for name, cells in here.items()
    ]
    rows += [
        TableRow([words(name), *(EMPTY if c[0] in others else MISSING for c in columns)], "missing")
        for name in missing_rows(streams)
    ]
    theirs: dict[str, dict[tuple[str, str], Cell]] = {}
    for cited in paper_figures():
        name = model_name(cited.model) + (f", {cited.encoding}" if cited.encoding else "")
        theirs.setdefault(name, {})[cited.benchmark, cited.head] = printed(cited.mean, cited.interval)
    rows += [
        TableRow([words(n), *(cells.get(c, EMPTY) for c in columns)], "paper", "paper")
        for n, cells in theirs.items()
    ]
    return Table(
        "final-accuracy",
        "Final average accuracy in per cent",
        [
            Column("model", numeric=False),
            *(Column(f"{head} head", titles[benchmark], chart=True) for benchmark, head in columns),
        ],
        rows,
    )


def missing_rows(streams: Sequence[Stream]) -> list[str]:
    """Models of this project in each encoding, and the paper's baselines, of which there is no record at all."""
    summaries = [stream.panels[0].summary for stream in streams]
    adapted = {(s["model"], s["encoding"]) for s in summaries if s["adaptation"] != "none"}
    wanted = [
        row_name({"model": model, "encoding": encoding, "adaptation": "film"})
        for model in CNAPS_MODELS
        for encoding in ENCODINGS
        if (model, encoding) not in adapted
    ]
    baselines = dict.fromkeys(cited.model for cited in paper_figures() if cited.encoding is None)
    present = {summary["model"] for summary in summaries}
    return wanted + [model_name(model) for model in baselines if model not in present]


def _measures(streams: Sequence[Stream], names: Sequence[str]) -> Table:
    """A row for each stream and head with all that is measured of it."""
    rows = []
    for stream, name in zip(streams, names, strict=True):
        link = record_link(stream.read.record)
        for summary in stream.read.rows:
            cells = [_measure(summary, measure, link) for measure in MEASURES]
            rows.append(
                TableRow([words(name, link), words(summary["benchmark"]), words(summary["head"]), *cells])
            )
    return Table(
        "measures",
        "Every measure of every stream",
        [
            *(Column(title, numeric=False) for title in ("model", "benchmark", "head")),
            *(Column(one.title, low_is_best=one.low_is_best) for one in MEASURES.values()),
        ],
        rows,
    )


def _measure(summary: Row, name: str, link: str) -> Cell:
    mean, half = measured(summary, name)
    if mean is not None and MEASURES[name].title.endswith("accuracy, %"):
        return accuracy(mean, half, link)
    return number("" if mean is None else MEASURES[name].words(mean, half), mean)


def _panels(streams: Sequence[Stream]) -> list[dict[str, Any]]:
    """What the bar charts show: encodings and heads in the paper's order."""
    return [
        _panel(panel, name, record_link(stream.read.record))
        for stream, name in zip(streams, _chart_names(streams), strict=True)
        for panel in sorted(stream.panels, key=_head_order)
    ]


def _panel(panel: Panel, name: str, link: str) -> dict[str, Any]:
    """One chart, in per cent."""
    mean, half, (by_step, _) = panel.mean(), panel.half_intervals(), panel.by_step()
    steps = shown_steps(panel.n_tasks)
    return {
        "benchmark": panel.summary["benchmark"],
        "model": name,
        "encoding": panel.summary["encoding"],
        "head": panel.summary["head"],
        "title": panel.title,
        "outcome": panel.outcome,
        "setting": " · ".join(filter(None, panel.circumstances)),
        "tasks": list(panel.task_names),
        "colours": task_colours(panel.n_tasks),
        "steps": [
            {
                "learned": step + 1,
                "average": float(by_step[step]),
                "mean": [float(value) for value in mean[step, : step + 1]],
                "half": None if half is None else [float(value) for value in half[step, : step + 1]],
            }
            for step in steps
        ],
        "paper": None if panel.paper is None else {"mean": panel.paper["mean"]},
        "href": link,
    }


def _order(stream: Stream) -> tuple[tuple[int, str, bool, int], int, str]:
    """By model, then the paper's benchmarks in its order."""
    summary = stream.panels[0].summary
    known, benchmark = list(PAPER_BENCHMARKS), summary["benchmark"]
    return row_order(summary), known.index(benchmark) if benchmark in known else len(known), benchmark


def _head_order(panel: Panel) -> int:
    head = panel.summary["head"]
    return HEADS.index(head) if head in HEADS else len(HEADS)


def _notes(streams: Sequence[Stream]) -> list[str]:
    """What a reader must know before comparing numbers."""
    label = paper_figures()[0].label
    said = [
        f"Mean accuracy over all tasks after the last one, {PAPER_SHOTS} shots a class unless a row says otherwise. "
        "Ours: ± is the 95 % interval over runs (Student's t).",
        f"The paper's rows are those of its {label}, as printed; its transductive single-head cells are at chance "
        "level, which the README explains under “Differences from the paper and the released code”.",
    ]
    images = {(s["benchmark"], s["data_source"]): None for stream in streams for s in stream.read.rows}
    said += [
        f"Images of {PAPER_BENCHMARKS.get(benchmark, benchmark)}: {source}." for benchmark, source in images
    ]
    said.append(
        "Seconds are of learning and answering all runs, on whatever machine made the record; embedding that another "
        "run had done before (--keep-features) is not in them."
    )
    trained = {
        s["backbone"]: s["backbone_pretraining"]
        for stream in streams
        for s in stream.read.rows
        if s["backbone"] not in (None, "none") and s.get("backbone_pretraining")
    }
    said += [
        f"Backbone {name}: "
        + ("not pre-trained." if how == "none" else f"pre-trained on {how}. ")
        + (
            "Its classes overlap those of CIFAR-10 and CIFAR-100; the paper's backbone is a ResNet-18 trained on "
            "Meta-Dataset's ImageNet split."
            if how.startswith("ImageNet-1k")
            else ""
        )
        for name, how in trained.items()
    ]
    if any(stream.panels[0].summary["adaptation"] == "none" for stream in streams):
        said.append("With frozen features the three encodings are one and the same.")
    return said
