"""Records of `cl-cnaps ablate`: the methods of one ablation on the same tasks, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from cl_cnaps.errors import BadInputError
from cl_cnaps.evaluation.ablations import Method
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.loading import LoadedModel
from cl_cnaps.results.environment import describe_environment
from cl_cnaps.results.few_shot import EPISODES, RECALL, Entry
from cl_cnaps.results.few_shot_averages import GROUPS
from cl_cnaps.results.paper.ablations import ablation_rows
from cl_cnaps.results.record import Record, read_record, record_path, write_record

VERB = "ablate"

Row = dict[str, Any]
"""One method: an entry in summary.json, and one line of `cl-cnaps ablate --json`."""


@dataclass(frozen=True)
class Cell:
    """A method on one data set and task shape."""

    entry: Entry
    episodes: list[dict[str, Any]]
    recall: list[dict[str, Any]]
    reused: str | None
    """The record of an evaluation that it was taken from, if it was."""


@dataclass(frozen=True)
class MethodCells:
    """A method with all its cells."""

    method: Method
    config: CnapsConfig
    loaded: LoadedModel
    cells: list[Cell]


@dataclass(frozen=True)
class AblationRecord:
    """A record with its rows."""

    record: Record

    @property
    def path(self) -> Path:
        """The record's folder."""
        return self.record.path

    @property
    def which(self) -> str:
        """The ablation."""
        return str(self.record.summary["name"])

    @property
    def rows(self) -> list[Row]:
        """One for each method."""
        return list(self.record.summary["rows"])

    @property
    def missing(self) -> list[dict[str, Any]]:
        """Data sets that were not there."""
        return list(self.record.summary["missing"])

    def recall(self, row: str) -> list[dict[str, str]]:
        """Class recall for each data set and number of shots, of one row."""
        return [one for one in self.record.table(RECALL) if one["row"] == row]


def ablation_row(which: str, of: MethodCells) -> Row:
    """All that is said of one method. Accuracies are fractions, the paper's figures per cent."""
    method, config = of.method, of.config
    results = [{**cell.entry, **_paper(which, method, cell.entry)} for cell in of.cells]
    return {
        "ablation": which,
        "row": method.key,
        "title": method.title,
        "model": config.model,
        "variant": config.variant,
        "metric": config.metric,
        "refine": {"min": config.refine_min, "max": config.refine_max} if config.refines else None,
        "backbone": config.backbone,
        "adaptation": config.adaptation,
        "weights_source": of.loaded.weights_source,
        "results": results,
        "averages": _averages(results),
        "reused": sorted({cell.reused for cell in of.cells if cell.reused}),
    }


def write_ablation_record(
    out: Path,
    which: str,
    config: Mapping[str, Any],
    methods: Sequence[MethodCells],
    *,
    missing: Sequence[Mapping[str, Any]],
    environment_extra: Mapping[str, Any],
) -> AblationRecord:
    """Write `<out>/ablate/<which>/<id>/`, replacing a record of the same configuration."""
    record = write_record(
        out,
        VERB,
        which,
        config,
        environment=describe_environment(environment_extra),
        tables=_tables(which, methods),
        summary={
            "verb": VERB,
            "name": which,
            "id": record_path(out, VERB, which, config).name,
            "rows": [ablation_row(which, of) for of in methods],
            "missing": [dict(one) for one in missing],
        },
    )
    return AblationRecord(record)


def read_ablation_record(path: Path) -> AblationRecord:
    """The record of an ablation in the folder `path`."""
    record = read_record(path)
    if record.summary.get("verb") != VERB:
        raise BadInputError(f"{path} is a record of {record.summary.get('verb')!r}, not of an ablation")
    return AblationRecord(record)


def method_config(of: Method, config: CnapsConfig, digest: str | None) -> dict[str, Any]:
    """What a method is, as the record's configuration has it."""
    return {
        "row": of.key,
        "model": config.model,
        "variant": config.variant,
        "metric": config.metric,
        "refine": {"min": config.refine_min, "max": config.refine_max} if config.refines else None,
        "weights": digest,
    }


def _paper(which: str, method: Method, entry: Entry) -> dict[str, Any]:
    """The cell of the ablation's own table; of a figure there is none to cite."""
    row = ablation_rows(which).get(method.key)
    figure = row.cells.get(entry["data_set"]) if row and entry["shape"] == "variable" else None
    return {
        "paper": None if figure is None else {**asdict(figure), "unit": "percent"},
        "paper_imagenet": None,
    }


def _averages(results: Sequence[Entry]) -> dict[str, dict[str, Any]]:
    """Over the data sets in and out of domain; the paper's over the same ones, where it has them all."""
    found = {}
    for group, domains in GROUPS.items():
        members = [entry for entry in results if entry["domain"] in domains]
        if members:
            theirs = [entry["paper"] for entry in members]
            found[group] = {
                "data_sets": [entry["data_set"] for entry in members],
                "accuracy": fmean(entry["accuracy"]["mean"] for entry in members),
                "paper": None if None in theirs else fmean(figure["mean"] for figure in theirs),
            }
    return found


def _tables(which: str, methods: Sequence[MethodCells]) -> dict[str, Iterator[dict[str, Any]]]:
    """Every task's accuracy, but for the cells of a grid; class recall where the ablation is about it."""
    tables = {EPISODES: _named([of for of in methods if not of.method.of_grid], lambda cell: cell.episodes)}
    if which == "shots":
        tables[RECALL] = _named(methods, lambda cell: cell.recall)
    return tables


def _named(methods: Sequence[MethodCells], rows: Any) -> Iterator[dict[str, Any]]:
    return ({"row": of.method.key, **row} for of in methods for cell in of.cells for row in rows(cell))
