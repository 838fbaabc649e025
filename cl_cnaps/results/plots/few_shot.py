"""Charts of few-shot evaluations: recall against shots, the shape of tasks, accuracy against queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cl_cnaps.errors import BadInputError
from cl_cnaps.results.few_shot import FewShotRecord
from cl_cnaps.results.plots.few_shot_histograms import histogram_figure
from cl_cnaps.results.plots.few_shot_queries import queries_figure, varies_queries
from cl_cnaps.results.plots.few_shot_recall import recall_figure
from cl_cnaps.results.plots.style import chart_settings, save
from cl_cnaps.results.record import record_name

FORMATS = ("png", "svg")


def draw_few_shot_figures(record: FewShotRecord, *, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Draw one record into its own `figures/`."""
    return draw_few_shot([record], record.path / "figures", formats=formats)


def draw_few_shot(
    records: Sequence[FewShotRecord], folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """Draw records together: recall against shots, ways and shots of tasks and, if varied, accuracy against queries.

    With one record the lines of the recall chart are data sets and task shapes, with several they are records. Targets
    have figures of their own, called after them where there are several.
    """
    if not records:
        raise BadInputError("there is no record to draw")
    for extension in formats:
        if extension not in FORMATS:
            raise BadInputError(f"unknown format {extension!r}; known: {', '.join(FORMATS)}")
    targets: dict[str, list[FewShotRecord]] = {}
    for record in records:
        targets.setdefault(record.entries[0]["target"], []).append(record)
    paths = []
    with chart_settings():
        for target, mine in targets.items():
            suffix = "" if len(targets) == 1 else f"-{record_name(target)}"
            paths += save(recall_figure(mine), folder, f"recall{suffix}", formats)
            paths += save(histogram_figure(mine[0]), folder, f"tasks{suffix}", formats)
            varied = [record for record in mine if varies_queries(record)]
            if varied:
                paths += save(queries_figure(varied), folder, f"queries{suffix}", formats)
    return paths


def draw_shapes_of_tasks(
    record: FewShotRecord, folder: Path, *, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """How many ways and shots the tasks of a record have, alone."""
    with chart_settings():
        return save(histogram_figure(record), folder, "tasks", formats)
