"""What the paper reports, as data, to stand beside what was measured here; the TOML files have its tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

TrainedOn = Literal["benchmark", "imagenet"]
"""The benchmark's own training classes; or ImageNet alone (of mini- and tiered-ImageNet: without the test classes)."""

_TABLES: dict[tuple[str, TrainedOn], str] = {
    ("meta-dataset", "benchmark"): "meta-dataset",
    ("meta-dataset", "imagenet"): "meta-dataset-imagenet-only",
    ("mini-tiered", "benchmark"): "mini-tiered",
    ("mini-tiered", "imagenet"): "mini-tiered-feti",
}
_MINI_TIERED = ("mini-imagenet", "tiered-imagenet")
_ABOUT_ROWS = ("name", "model", "ranks", "row", "label")


@cache
def _document(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class PaperFigure:
    """A final average accuracy in per cent, as printed; `interval` is the number after the ±, if any."""

    benchmark: str
    model: str
    encoding: str | None
    head: str
    shots: int
    mean: float
    interval: float | None
    label: str
    """The LaTeX label of the table in the paper."""


@cache
def paper_figures() -> tuple[PaperFigure, ...]:
    """Every cell the paper fills, in its order of rows."""
    table = _document("continual")
    figures = []
    for row in table["row"]:
        model, encoding = row["model"], row.get("encoding")
        for benchmark, heads in ((key, row[key]) for key in row if key not in ("model", "encoding")):
            for head, (mean, *interval) in heads.items():
                half = interval[0] if interval else None
                figures.append(
                    PaperFigure(benchmark, model, encoding, head, table["shots"], mean, half, table["label"])
                )
    return tuple(figures)


def paper_figure(*, benchmark: str, model: str, encoding: str | None, head: str) -> PaperFigure | None:
    """The paper's cell for this combination, or None where it has none."""
    wanted = (benchmark, model, encoding, head)
    return next((f for f in paper_figures() if (f.benchmark, f.model, f.encoding, f.head) == wanted), None)


@dataclass(frozen=True)
class FewShotFigure:
    """An accuracy in per cent, as printed, with the number after the ±."""

    mean: float
    interval: float
    label: str
    """The LaTeX label of the table in the paper."""


def few_shot_figure(
    data_set: str, shape: str, model: str, trained_on: TrainedOn = "benchmark"
) -> FewShotFigure | None:
    """The paper's cell for a data set, a shape of tasks (`variable`, `5-way 1-shot`, ...) and a model, if any."""
    benchmark = "mini-tiered" if data_set in _MINI_TIERED else "meta-dataset"
    if benchmark == "meta-dataset" and shape != "variable":
        return None
    table = _TABLES[benchmark, trained_on]
    row: dict[str, Any] = next((row for row in _document("few_shot")[table] if row.get("model") == model), {})
    cell = row.get(data_set)
    if benchmark == "mini-tiered" and cell is not None:
        cell = cell.get(shape)
    return None if cell is None else FewShotFigure(cell[0], cell[1], _document("few_shot")["labels"][table])


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables."""

    name: str
    trained_on: TrainedOn
    cells: dict[tuple[str, str], tuple[float, float]]
    """Data set and shape of tasks -> mean and half of the interval, per cent."""
    label: str


def paper_rows(target: str) -> list[PaperRow]:
    """Every row that the paper has for `meta-dataset`, `mini-imagenet` or `tiered-imagenet`; of others none."""
    benchmark = "mini-tiered" if target in _MINI_TIERED else target
    rows = []
    for (table_of, trained_on), table in _TABLES.items():
        for row in _document("few_shot")[table] if table_of == benchmark else ():
            if benchmark == "mini-tiered":
                cells = {(target, shape): (cell[0], cell[1]) for shape, cell in row.get(target, {}).items()}
            else:
                cells = {
                    (key, "variable"): (cell[0], cell[1])
                    for key, cell in row.items()
                    if key not in _ABOUT_ROWS
                }
            if cells:
                rows.append(PaperRow(row["name"], trained_on, cells, _document("few_shot")["labels"][table]))
    return rows


def meta_dataset_rows() -> dict[str, dict[str, tuple[float, float]]]:
    """Every row of the Meta-Dataset table: method -> data set -> mean and half of the interval, per cent."""
    return {
        row["name"]: {key: (cell[0], cell[1]) for key, cell in row.items() if key not in _ABOUT_ROWS}
        for row in _document("few_shot")["meta-dataset"]
    }


def printed_ranks() -> dict[str, tuple[float, float, float]]:
    """The average ranks that the paper prints: in-domain, out-of-domain, over all."""
    return {row["name"]: tuple(row["ranks"]) for row in _document("few_shot")["meta-dataset"]}


def row_of(model: str) -> str | None:
    """The name of a model's row in the Meta-Dataset table, if it has one."""
    return next(
        (row["name"] for row in _document("few_shot")["meta-dataset"] if row.get("model") == model), None
    )


@dataclass(frozen=True)
class AblationRow:
    """A row as the paper names it, and its cells by data set."""

    name: str
    cells: dict[str, FewShotFigure]


@cache
def ablation_rows(which: str) -> dict[str, AblationRow]:
    """The rows of one ablation by what they are called here; none where the paper has a figure only."""
    document = _document("ablations")
    rows = {}
    for row in document.get(which, []):
        label = row.get("label", document["labels"][which])
        cells = {
            data_set: FewShotFigure(cell[0], cell[1], label)
            for data_set, cell in row.items()
            if data_set not in _ABOUT_ROWS
        }
        rows[row["row"]] = AblationRow(row["name"], cells)
    return rows


def ablation_figure(data_set: str, shape: str, variant: str, metric: str) -> FewShotFigure | None:
    """The paper's cell for a data set, a shape of tasks and a variant, or else a metric of Simple CNAPS, if any."""
    which = "metric" if variant == "plain" else "gmm" if variant.startswith("gmm") else "transduction"
    row = ablation_rows(which).get(metric if variant == "plain" else variant)
    return row.cells.get(data_set) if row is not None and shape == "variable" else None
