"""What the paper reports, as data, to stand beside what was measured here; the TOML files have its tables."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
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
    """Return every cell that the paper fills, in its order of rows."""
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


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's few-shot tables."""

    name: str
    model: str | None
    """Its name here, of the models that are here."""
    benchmark: str
    trained_on: TrainedOn
    cells: dict[tuple[str, str], tuple[float, float]]
    """Data set and shape of tasks -> mean and half of the interval, per cent."""
    label: str


@cache
def _few_shot_rows() -> tuple[PaperRow, ...]:
    document = _document("few_shot")
    rows = []
    for (benchmark, trained_on), table in _TABLES.items():
        for row in document[table]:
            cells: dict[tuple[str, str], tuple[float, float]] = {}
            for data_set, cell in row.items():
                if data_set not in _ABOUT_ROWS:
                    shapes = cell if isinstance(cell, dict) else {"variable": cell}
                    cells |= {(data_set, shape): (mean, half) for shape, (mean, half) in shapes.items()}
            label = document["labels"][table]
            rows.append(PaperRow(row["name"], row.get("model"), benchmark, trained_on, cells, label))
    return tuple(rows)


def few_shot_figure(
    data_set: str, shape: str, model: str, trained_on: TrainedOn = "benchmark"
) -> FewShotFigure | None:
    """The paper's cell for a data set, a shape of tasks (`variable`, `5-way 1-shot`, ...) and a model, if any."""
    for row in _few_shot_rows():
        if (row.model, row.trained_on) == (model, trained_on) and (data_set, shape) in row.cells:
            return FewShotFigure(*row.cells[data_set, shape], row.label)
    return None


def paper_rows(target: str) -> list[PaperRow]:
    """Return every row that the paper has for `meta-dataset`, `mini-imagenet` or `tiered-imagenet`; of others none."""
    rows = []
    for row in _few_shot_rows():
        of_sets = row.benchmark == "mini-tiered"
        cells = {
            key: cell for key, cell in row.cells.items() if target == (key[0] if of_sets else row.benchmark)
        }
        if cells:
            rows.append(replace(row, cells=cells))
    return rows


def meta_dataset_rows() -> dict[str, dict[str, tuple[float, float]]]:
    """Return the rows of the Meta-Dataset table: method -> data set -> mean and half of the interval, per cent."""
    return {
        row.name: {data_set: cell for (data_set, _), cell in row.cells.items()}
        for row in paper_rows("meta-dataset")
        if row.trained_on == "benchmark"
    }


def row_of(model: str) -> str | None:
    """The name of a model's row in the Meta-Dataset table, if it has one."""
    return next((row.name for row in paper_rows("meta-dataset") if row.model == model), None)


@cache
def ablation_rows(which: str) -> dict[str, dict[str, FewShotFigure]]:
    """The cells of one ablation by row, as it is called here, and data set; none where the paper has a figure only."""
    document = _document("ablations")
    rows = {}
    for row in document.get(which, []):
        label = row.get("label", document["labels"][which])
        cells = {name: cell for name, cell in row.items() if name not in _ABOUT_ROWS}
        rows[row["row"]] = {name: FewShotFigure(cell[0], cell[1], label) for name, cell in cells.items()}
    return rows


def ablation_figure(data_set: str, shape: str, variant: str, metric: str) -> FewShotFigure | None:
    """The paper's cell for a data set, a shape of tasks and a variant, or else a metric of Simple CNAPS, if any."""
    which = "metric" if variant == "plain" else "gmm" if variant.startswith("gmm") else "transduction"
    row = ablation_rows(which).get(metric if variant == "plain" else variant, {})
    return row.get(data_set) if shape == "variable" else None
