"""The paper's continual-learning table, cell by cell."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


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
    table = tomllib.loads(resources.files(__package__).joinpath("continual.toml").read_text(encoding="utf-8"))
    figures = []
    for row in table["row"]:
        model, encoding = row.pop("model"), row.pop("encoding", None)
        for benchmark, heads in row.items():
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
