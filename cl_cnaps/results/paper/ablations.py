"""The paper's ablation tables on Meta-Dataset, row by row."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from cl_cnaps.results.paper.few_shot import FewShotFigure

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


@cache
def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("ablations.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
