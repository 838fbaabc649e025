"""From records to files: which panels share a figure, and what the files are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from cl_cnaps.errors import BadInputError
from cl_cnaps.records.record import record_name
from cl_cnaps.report.labels import row_name
from cl_cnaps.report.plots.bars import bar_figure, comparison_figure
from cl_cnaps.report.plots.heatmap import heatmap_figure
from cl_cnaps.report.plots.panel import Panel, panels_of
from cl_cnaps.report.plots.steps import step_figure
from cl_cnaps.report.plots.style import FORMATS, chart_settings, save
from cl_cnaps.report.stream import StreamView

KINDS = ("bars", "steps", "heatmap", "comparison")

_DRAW: dict[str, Callable[[Sequence[Panel]], Figure]] = {
    "bars": bar_figure,
    "steps": step_figure,
    "heatmap": heatmap_figure,
    "comparison": comparison_figure,
}


def draw_streams(
    records: Sequence[StreamView],
    folder: Path,
    *,
    kinds: Sequence[str] = KINDS,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Draw records together into `folder`.

    Bars: records that differ in encoding only share a grid, encodings down and heads across. Steps: records
    of one benchmark share a figure, a line each. Comparison: the models of one benchmark, a bar for each head. Heat
    maps: one figure per record. A file is called after its
    kind, with benchmark, model and encoding added where the kind gives more than one figure.
    """
    _check("kind", kinds, KINDS)
    _check("format", formats, FORMATS)
    if not records:
        raise BadInputError("there is no record to draw")
    paths = []
    with chart_settings():
        for kind in kinds:
            groups = _grouped(records, kind)
            for suffix, panels in zip(_suffixes(groups), groups, strict=True):
                paths += save(_DRAW[kind](panels), folder, kind + suffix, formats)
    return paths


def _grouped(records: Sequence[StreamView], kind: str) -> list[list[Panel]]:
    """The panels of every figure of one kind."""
    groups: dict[str, list[Panel]] = {}
    for record in records:
        for panel in panels_of(record):
            benchmark = str(panel.summary["benchmark"])
            keys = {"bars": panel.setting, "heatmap": str(record.path), "steps": benchmark}
            groups.setdefault(keys.get(kind, benchmark), []).append(panel)
    if kind == "comparison":  # of one model there is nothing to compare
        groups = {
            key: panels
            for key, panels in groups.items()
            if len({row_name(panel.summary) for panel in panels}) > 1
        }
    return list(groups.values())


def _suffixes(groups: Sequence[Sequence[Panel]]) -> list[str]:
    """Nothing for a lone figure; else the words that name each, and a number where words repeat."""
    if len(groups) == 1:
        return [""]
    words = []
    for panels in groups:
        shared = [{panel.summary[key] for panel in panels} for key in ("benchmark", "model", "encoding")]
        words.append(record_name("-".join(values.pop() or "" for values in shared if len(values) == 1)))
    return [
        f"-{word}-{words[:i].count(word) + 1}" if words.count(word) > 1 else f"-{word}"
        for i, word in enumerate(words)
    ]


def _check(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    if not given:
        raise BadInputError(f"no {what} was asked for; known: {', '.join(known)}")
    for value in given:
        if value not in known:
            raise BadInputError(f"unknown {what} {value!r}; known: {', '.join(known)}")
