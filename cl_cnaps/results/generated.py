"""The generated parts of Markdown files: tables made from the records in a results folder, never typed by hand.

A part stands between `<!-- generated: NAME -->` and `<!-- end generated -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from cl_cnaps.errors import BadInputError
from cl_cnaps.evaluation.ablations import ABLATIONS
from cl_cnaps.results.ablation import read_ablation_record
from cl_cnaps.results.ablation_tables import ablation_markdown
from cl_cnaps.results.active import read_active_record
from cl_cnaps.results.active_tables import active_markdown
from cl_cnaps.results.few_shot import few_shot_records
from cl_cnaps.results.few_shot_comparison import comparison_markdown
from cl_cnaps.results.paper import paper_figures
from cl_cnaps.results.record import records_under
from cl_cnaps.results.speed import speed_bars, speed_sentence, speed_table
from cl_cnaps.results.stream_names import CNAPS_ORDER, PAPER_BENCHMARKS, row_name, row_order
from cl_cnaps.results.streams import stream_records
from cl_cnaps.results.wording import model_name

_PART = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)

_CELLS = [(benchmark, head) for benchmark in PAPER_BENCHMARKS for head in ("multi", "single")]


def continual_table(results: Path) -> str:
    """The paper's continual table: a row per model and setting measured here, then the paper's own rows."""
    measured: dict[str, dict[tuple[str, str], str]] = {}
    summaries = [s for record in stream_records([results / "stream"]) for s in record.summaries]
    for summary in sorted(summaries, key=row_order):
        figure = summary["final_accuracy"]
        if (summary["benchmark"], summary["head"]) in _CELLS:
            cell = _percent(100 * figure["mean"], None if figure["ci95"] is None else 100 * figure["ci95"])
            measured.setdefault(row_name(summary), {})[summary["benchmark"], summary["head"]] = cell
    printed: dict[str, dict[tuple[str, str], str]] = {}
    for cited in paper_figures():
        name = f"paper: {model_name(cited.model)}" + (f", {cited.encoding}" if cited.encoding else "")
        printed.setdefault(name, {})[cited.benchmark, cited.head] = _percent(cited.mean, cited.interval)
    lines = [
        "| | " + " | ".join(f"{PAPER_BENCHMARKS[benchmark]} {head}" for benchmark, head in _CELLS) + " |"
    ]
    lines.append("| :--- |" + " ---: |" * len(_CELLS))
    for name, cells in [*measured.items(), *((f"*{name}*", cells) for name, cells in printed.items())]:
        lines.append(f"| {name} | " + " | ".join(cells.get(cell, "") for cell in _CELLS) + " |")
    sources: dict[str, dict[str, None]] = {}
    for summary in summaries:
        sources.setdefault(summary["benchmark"], {})[summary["data_source"]] = None
    images = "; ".join(
        f"{title}, {' or '.join(sources[name])}"
        for name, title in PAPER_BENCHMARKS.items()
        if name in sources
    )
    return "\n".join([*lines, "", f"*Images: {images}.*"])


def _percent(mean: float, half_width: float | None) -> str:
    return f"{mean:.1f}" + (f" ± {half_width:.1f}" if half_width is not None else "")


def few_shot_tables(results: Path) -> str:
    """A table for each benchmark, models side by side and the paper's rows; queries not varied."""
    parts = []
    for target, title in (("mini-imagenet", "mini-ImageNet"), ("meta-dataset", "Meta-Dataset")):
        folders = [results / "evaluate" / f"{target}-{model}" for model in CNAPS_ORDER]
        records = few_shot_records([folder for folder in folders if folder.is_dir()])
        plain = [record for record in records if len({entry["queries"] for entry in record.entries}) <= 1]
        plain.sort(key=lambda record: record.entries[0]["adaptation"] == "none")
        if plain:
            parts.append(f"**{title}**\n\n{comparison_markdown(plain)}")
    return "\n\n".join(parts)


def ablation_part(which: str) -> Callable[[Path], str]:
    """The tables of one ablation, from each of its records."""

    def part(results: Path) -> str:
        records = [read_ablation_record(r.path) for r in records_under(results / "ablate" / which)]
        if not records:
            return f"Not measured yet: `cl-cnaps ablate {which} --out results` makes the record."
        return "\n\n".join(ablation_markdown(record, data_sets=False).rstrip() for record in records)

    return part


def active_part(source: str) -> Callable[[Path], str]:
    """The table of the learning curves on one source, of all models and kinds of features."""

    def part(results: Path) -> str:
        every = [read_active_record(r.path) for r in records_under(results / "active")]
        entries = [entry for record in every for entry in record.entries if entry["source"] == source]
        entries.sort(key=lambda entry: (entry["model"], entry["adaptation"] == "none"))
        if not entries:
            return f"Not measured yet: `cl-cnaps active --source {source} --out results` makes the records."
        return active_markdown(entries)

    return part


TABLES: Mapping[str, Callable[[Path], str]] = {
    "continual-table": continual_table,
    "few-shot-tables": few_shot_tables,
    **{f"ablation-{which}": ablation_part(which) for which in ABLATIONS},
    **{f"active-{source}": active_part(source) for source in ("cifar10", "omniglot")},
    "speed-table": speed_table,
    "speed-bars": speed_bars,
    "speed-sentence": speed_sentence,
}


def filled(text: str, results: Path, parts: Mapping[str, Callable[[Path], str]] = TABLES) -> str:
    """The text with its generated parts made anew by what `parts` has under their names."""

    def fill(match: re.Match[str]) -> str:
        name = match[2]
        if name not in parts:
            raise BadInputError(f"there is no generated part {name!r}; there are {', '.join(parts)}")
        return f"{match[1]}{parts[name](results).rstrip()}\n{match[3]}"

    return _PART.sub(fill, text)
