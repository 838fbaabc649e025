"""Fill the generated parts of a Markdown file from the records in a results folder.

    python -m cl_cnaps.results.readme README.md results [--check]

A generated part stands between `<!-- generated: NAME -->` and `<!-- end generated -->`. Nothing in it is typed by
hand; with --check nothing is written, and a file that is out of date is an error.
"""

from __future__ import annotations

import argparse
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
from cl_cnaps.results.record import Record, records_under, write_atomically
from cl_cnaps.results.speed import speed_bars, speed_sentence, speed_table
from cl_cnaps.results.stream_names import PAPER_BENCHMARKS, row_name, row_order
from cl_cnaps.results.streams import stream_records
from cl_cnaps.results.wording import adaptation_words, model_name

_PART = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)

_RECIPES = {
    "stream/": "benchmarks/continual.toml",
    "evaluate/meta-dataset-": "benchmarks/meta-dataset.toml",
    "evaluate/mini-imagenet-": "benchmarks/mini-tiered.toml",
    "evaluate/tiered-imagenet-": "benchmarks/mini-tiered.toml",
    "ablate/metric-": "benchmarks/ablations/metric.toml",
    "ablate/gmm-": "benchmarks/ablations/model.toml",
    "ablate/transduction-": "benchmarks/ablations/model.toml",
    "ablate/refinement-": "benchmarks/ablations/refinement-grid.toml",
    "ablate/shots-": "benchmarks/shots.toml",
    "ablate/queries-": "benchmarks/queries.toml",
    "active/cifar10-": "benchmarks/active/cifar10.toml",
    "active/omniglot-": "benchmarks/active/omniglot.toml",
}
"""Of which table or figure a record is, by how its verb and name begin; its own numbers of tasks or runs may differ."""

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
    return "\n".join(lines)


def _percent(mean: float, half_width: float | None) -> str:
    return f"{mean:.1f}" + (f" ± {half_width:.1f}" if half_width is not None else "")


def few_shot_tables(results: Path) -> str:
    """A table for each benchmark, models side by side and the paper's rows; queries not varied."""
    parts = []
    for target, title in (("mini-imagenet", "mini-ImageNet"), ("meta-dataset", "Meta-Dataset")):
        folders = [
            results / "evaluate" / f"{target}-{model}" for model in ("simple", "transductive", "protonet")
        ]
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


def recipe_of(record: Record) -> str:
    """The recipe in benchmarks/ of the table or figure that a record belongs to; nothing where there is none."""
    place = f"{record.verb}/{record.name}-"
    return next((recipe for start, recipe in _RECIPES.items() if place.startswith(start)), "")


def record_list(results: Path) -> str:
    """Every record below a results folder, with its recipe, its command, and the code it was made with."""
    lines = [
        "| record | what | recipe of its table | command | commit | finished |",
        "| :--- | :--- | :--- | :--- | :--- | :--- |",
    ]
    for record in sorted(records_under(results), key=lambda record: str(record.path)):
        place = record.path.relative_to(results)
        environment = record.environment
        what = _what(record)
        commit = (environment["code"]["commit"] or environment["code"]["version"])[:10]
        day = environment["finished"][:10]
        recipe = recipe_of(record)
        link = f"[{recipe}](../{recipe})" if recipe else ""
        lines.append(
            f"| [{place}]({place}) | {what} | {link} | `{environment['command']}` | {commit} | {day} |"
        )
    return "\n".join(lines)


def _what(record: Record) -> str:
    """What a record measured that its place does not say: the model, how its features adapt, how many tasks."""
    config = record.config
    if record.verb == "speed":
        return f"{config['threads']} threads"
    if record.verb == "stream":
        return row_name(record.summary["heads"][0])
    said = [model_name(config["model"])] if "model" in config else []
    said.append(adaptation_words(config["adaptation"]))
    if "tasks" in config:
        said.append(f"{config['tasks']} tasks")
    return ", ".join(filter(None, said))


PARTS: Mapping[str, Callable[[Path], str]] = {
    "continual-table": continual_table,
    "few-shot-tables": few_shot_tables,
    **{f"ablation-{which}": ablation_part(which) for which in ABLATIONS},
    **{f"active-{source}": active_part(source) for source in ("cifar10", "omniglot")},
    "record-list": record_list,
    "speed-table": speed_table,
    "speed-bars": speed_bars,
    "speed-sentence": speed_sentence,
}


def filled(text: str, results: Path) -> str:
    """The text with its generated parts made anew."""

    def fill(match: re.Match[str]) -> str:
        name = match[2]
        if name not in PARTS:
            raise BadInputError(f"there is no generated part {name!r}; there are {', '.join(PARTS)}")
        return f"{match[1]}{PARTS[name](results).rstrip()}\n{match[3]}"

    return _PART.sub(fill, text)


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date; write nothing")
    arguments = parser.parse_args()
    before = arguments.file.read_text()
    after = filled(before, arguments.results)
    if arguments.check and before != after:
        raise SystemExit(f"{arguments.file} is out of date: run python -m cl_cnaps.results.readme")
    if not arguments.check:
        write_atomically(arguments.file, after.encode())


if __name__ == "__main__":
    main()
