"""The paper's ablation tables on Meta-Dataset, row by row."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from cl_cnaps.report.paper.few_shot import FewShotFigure

_ABOUT_ROWS = ("row", "name", "label")


@dataclass(frozen=True)
class AblationRow:
    """A row as the paper names it, and its cells by data set."""

    name: str
    cells: dict[str, FewShotFigure]


@cache
def ablation_rows(which: str) -> dict[str, AblationRow]:
    """The rows of one ablation by what they are called here; none where the paper has a figure only."""
    document = _document()
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


@cache
def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("ablations.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
