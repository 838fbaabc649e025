"""The generated parts of Markdown files: tables made from the records in a results folder, never typed by hand.

A part stands between `<!-- generated: NAME -->` and `<!-- end generated -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from cl_cnaps.errors import BadInputError
from cl_cnaps.names import ABLATIONS, BENCHMARKS, CNAPS_MODELS, PAPER_BENCHMARKS
from cl_cnaps.records.record import Record, record_name, records_under
from cl_cnaps.report.ablation import FIGURE_TITLES, AblationView
from cl_cnaps.report.active import ActiveView, active_table
from cl_cnaps.report.few_shot import FewShotView, comparison_table
from cl_cnaps.report.findings import Evidence, ablation_sentence, findings
from cl_cnaps.report.labels import row_order
from cl_cnaps.report.speed import class_memory_table, scaling_table, speed_bars, speed_sentence, speed_table
from cl_cnaps.report.standings import (
    ANY_ENCODING,
    caveats,
    paper_standings,
    short_standings,
    standings,
    standings_table,
)
from cl_cnaps.report.stream import StreamView
from cl_cnaps.report.table import EMPTY, Cell, Column, Table, markdown_table
from cl_cnaps.report.training import shipped_weights_table

_PART = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end generated -->)", re.DOTALL)

_NO_STREAMS = "Not measured yet: `cl-cnaps sweep benchmarks/continual.toml --out results` makes the records."
_BLANK = Cell("")


def continual_table(results: Path) -> str:
    """The paper's continual table: a row per model and setting measured here, then the paper's own rows."""
    views = [view for view in _streams(results) if view.rows[0]["benchmark"] in PAPER_BENCHMARKS]
    if not views:
        return _NO_STREAMS
    table = _headed(pd.concat([standings(views), paper_standings()], ignore_index=True), "")
    rows = [
        replace(row, cells=[_BLANK if cell is EMPTY else cell for cell in row.cells]) for row in table.rows
    ]
    images = {
        title: _images([view for view in views if view.rows[0]["benchmark"] == name])
        for name, title in PAPER_BENCHMARKS.items()
    }
    sources = "; ".join(f"{title}, {found}" for title, found in images.items() if found)
    return f"{markdown_table(replace(table, rows=rows))}\n*Images: {sources}.*"


def _images(views: Sequence[StreamView]) -> str:
    """Where the images of some records came from, and which were drawn in place of listed ones."""
    return " or ".join(dict.fromkeys(row["data_source"] for view in views for row in view.rows))


def _headed(frame: pd.DataFrame, first: str) -> Table:
    """A table of standings with one line of headers: `MNIST single`."""
    table = standings_table("", "", frame, list(PAPER_BENCHMARKS))
    titles = [f"{one.group} {one.title.removesuffix(' head')}" for one in table.columns[1:]]
    return replace(table, columns=[Column(first, numeric=False), *map(Column, titles)])


def front_table(results: Path) -> str:
    """At most ten rows: each CNAPS model, the best rivals, the paper's rows; and what must be known to compare them."""
    views = _streams(results)
    if not views:
        return _NO_STREAMS
    table, notes = _headed(short_standings(views), "model"), caveats(views)
    if any(ANY_ENCODING in row.cells[0].text for row in table.rows):
        notes.append("Any encoding: moving, first and averaging agree within 0.15 points in every column.")
    return markdown_table(replace(table, notes=notes))


def first_output(results: Path) -> str:
    """What the main job prints, as it was printed."""
    return f"```text\n{(results / 'first-output.txt').read_text(encoding='utf-8').rstrip()}\n```"


def findings_part(results: Path) -> str:
    """Return the findings, a line for each sentence whose records are there."""
    found = findings(Evidence.of(list(records_under(results))))
    return "\n".join(f"- {one.text}" for one in found) or "Nothing yet: there are no records."


def _streams(results: Path) -> list[StreamView]:
    return [StreamView(record) for record in records_under(results / "stream")]


def weights_of(record: Record) -> set[str]:
    """Return the digests of the adaptation weights that a record was made with."""
    about = record.environment
    found: dict[str, str | None] = about.get("weights_digests") or {"": about.get("weights_digest")}
    return {digest for digest in found.values() if digest is not None}


def weights_note(records: Iterable[Record]) -> str:
    """Return a line if some of the records were made with adaptation weights that are not those shipped now."""
    from cl_cnaps.models.weights import describe, shipped_root

    shipped = {describe(file).digest for file in shipped_root().glob("*.safetensors")}
    earlier: set[str] = set()
    for record in records:
        earlier |= weights_of(record) - shipped
    if not earlier:
        return ""
    return (
        f"*Adapted features here are of earlier weights ({', '.join(sorted(earlier))}), not of those shipped now: "
        "these records are still to be made again.*\n\n"
    )


def few_shot_tables(results: Path) -> str:
    """A table for each benchmark, models side by side and the paper's rows; queries not varied."""
    parts = []
    for target, title in (("mini-imagenet", "mini-ImageNet"), ("meta-dataset", "Meta-Dataset")):
        folders = [results / "evaluate" / f"{target}-{model}" for model in CNAPS_MODELS]
        views = FewShotView.under([folder for folder in folders if folder.is_dir()])
        plain = [view for view in views if len({row["queries"] for row in view.rows}) <= 1]
        plain.sort(key=lambda view: view.rows[0]["adaptation"] == "none")
        if plain:
            note = weights_note(view.record for view in plain)
            parts.append(f"**{title}**\n\n{note}{markdown_table(comparison_table(plain))}")
    return "\n\n".join(parts) or "Not measured yet: `cl-cnaps evaluate` makes the records."


def ablation_part(which: str) -> Callable[[Path], str]:
    """The tables of one ablation, from each of its records."""

    def part(results: Path) -> str:
        views = [AblationView(record) for record in records_under(results / "ablate" / which)]
        if not views:
            return f"Not measured yet: `cl-cnaps ablate {which} --out results` makes the record."
        return "\n".join(
            f"{weights_note([view.record])}{ablation_sentence(view)}\n\n{_figures(view, results)}"
            f"{ablation_markdown(view, data_sets=False)}"
            for view in views
        )

    return part


def _figures(view: AblationView, results: Path) -> str:
    """The figures that a record has beside it, for a page in docs/."""
    found = sorted(view.path.glob("figures/*.png"))
    folder = f"../{results.name}/{view.path.relative_to(results).as_posix()}/figures"
    return "".join(f"![{FIGURE_TITLES[one.stem]}]({folder}/{one.name})\n\n" for one in found)


def ablation_markdown(view: AblationView, *, data_sets: bool = True) -> str:
    """The tables of an ablation in Markdown; what holds of each data set may be left out."""
    return "\n".join(_titled(table) for table in view.own_tables(data_sets=data_sets))


def _titled(table: Table) -> str:
    """A table below its caption, and below what it shares with those that follow."""
    shared = f"**{' · '.join(table.shared)}**\n\n" if table.shared else ""
    caption = f"{table.caption[0].upper()}{table.caption[1:]}:\n\n"
    return shared + caption + markdown_table(replace(table, shared=()))


def active_part(source: str) -> Callable[[Path], str]:
    """The table of the learning curves on one source, of all models and kinds of features."""

    def part(results: Path) -> str:
        every = [ActiveView(record) for record in records_under(results / "active")]
        every = [view for view in every if any(row["source"] == source for row in view.rows)]
        rows = [row for view in every for row in view.rows]
        rows.sort(key=lambda row: (row["model"], row["adaptation"] == "none"))
        if not rows:
            return f"Not measured yet: `cl-cnaps active --source {source} --out results` makes the records."
        return weights_note(view.record for view in every) + markdown_table(active_table(rows))

    return part


def stream_part(benchmarks: Sequence[str], recipe: str) -> Callable[[Path], str]:
    """The tables of some benchmarks: all models of each, compared with the first, and the images that they had."""

    def part(results: Path) -> str:
        parts: list[str] = []
        for benchmark in benchmarks:
            records = records_under(results / "stream" / record_name(benchmark))
            views = sorted(map(StreamView, records), key=lambda view: row_order(view.rows[0]))
            if views:
                parts += map(markdown_table, StreamView.tables(StreamView.compared(views)))
                parts.append(f"*Images: {_images(views)}.*\n")
        command = f"cl-cnaps sweep benchmarks/streams/{recipe}.toml --out results"
        return "\n".join(parts) or f"Not measured yet: `{command}` makes the records."

    return part


def validation_table(results: Path) -> str:
    """Markdown: the settings that were compared on validation classes, each the mean over sources, the best in bold."""
    path = results / "validation.csv"
    if not path.is_file():
        return "Not measured yet."
    lines = ["| choice | use | accuracy |", "| :--- | :--- | :--- |"]
    rows = pd.read_csv(path).reindex(columns=["choice", "use", "setting", "accuracy", "seconds"])
    for (choice, use), compared in rows.groupby(["choice", "use"], sort=False):
        shown = compared.groupby("setting", sort=False)[["accuracy", "seconds"]].mean()
        cells = []
        for setting, accuracy, seconds in shown.itertuples():
            cell = f"{setting} {100 * accuracy:.1f}"
            cell = f"**{cell}**" if accuracy == shown["accuracy"].max() else cell
            cells.append(cell if pd.isna(seconds) else f"{cell} ({seconds:.1f} s a task)")
        lines.append(f"| {choice} | {use} | {', '.join(cells)} |")
    return "\n".join(lines)


TABLES: Mapping[str, Callable[[Path], str]] = {
    "front-table": front_table,
    "first-output": first_output,
    "findings": findings_part,
    "continual-table": continual_table,
    "fscil-tables": stream_part([name for name in BENCHMARKS if name.startswith("fscil-")], "fscil"),
    "domains-tables": stream_part(("mixed-domains",), "mixed-domains"),
    "permuted-table": stream_part(("permuted-mnist",), "permuted-mnist"),
    "class-incremental-tables": stream_part(
        [f"cifar100:B{base}-Inc10" for base in (0, 50)], "class-incremental"
    ),
    "few-shot-tables": few_shot_tables,
    **{f"ablation-{which}": ablation_part(which) for which in ABLATIONS},
    **{f"active-{source}": active_part(source) for source in ("cifar10", "omniglot")},
    "validation-table": validation_table,
    "shipped-weights": shipped_weights_table,
    "class-memory": class_memory_table,
    "speed-table": speed_table,
    "speed-bars": speed_bars,
    "scaling-table": scaling_table,
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
