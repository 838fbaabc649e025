"""What evaluations and other ablations have measured already: cells that need not be measured again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_cnaps.evaluation.targets import Target, TargetSet
from cl_cnaps.results.ablation import VERB, AblationRecord, Cell, MethodCells
from cl_cnaps.results.few_shot import EPISODES, RECALL, Entry, FewShotRecord, few_shot_config
from cl_cnaps.results.few_shot import VERB as EVALUATE
from cl_cnaps.results.record import Record, readable_record, record_folders

_OF_THE_TASKS = ("target", "data_sets", "shapes")
"""Keys of an evaluation's configuration that are compared data set by data set."""
_OF_ALL_ROWS = ("backbone", "backbone_digest", "image_size", "adaptation", "normaliser", "tasks", "seed")
"""Keys of an ablation's configuration that an evaluation of one of its rows would have too."""


@dataclass(frozen=True)
class Measured:
    """One method on some data sets and task shapes, as a record has it."""

    method: Mapping[str, Any]
    """What of its configuration is not of the tasks."""
    data_sets: Mapping[str, Any]
    shapes: Sequence[Mapping[str, Any]]
    entries: Sequence[Entry]
    record: Record
    row: str | None
    """Its row in the tables of an ablation; None in those of an evaluation, which are all its own."""

    @property
    def has_recall(self) -> bool:
        """Whether class recall was kept too."""
        return self.row is None or self.record.name == "shots"

    def rows(self, table: str, of: tuple[str, str, str]) -> list[dict[str, Any]]:
        """The rows of a table on one data set, shape and number of queries."""
        return [
            {key: value for key, value in row.items() if key != "row"}
            for row in self.record.table(table)
            if (row["data_set"], row["shape"], row["queries"]) == of and row.get("row") == self.row
        ]


def measured_under(out: Path, *, recall: bool) -> list[Measured]:
    """All that records in a folder of records have measured; with `recall`, those alone that have class recall."""
    every = [*_evaluations(out), *_ablations(out)]
    return [one for one in every if one.has_recall or not recall]


def _evaluations(out: Path) -> Iterator[Measured]:
    for record in _readable(out / EVALUATE):
        config, entries = record.config, FewShotRecord(record).entries
        method = {key: value for key, value in config.items() if key not in _OF_THE_TASKS}
        yield Measured(method, config["data_sets"], config["shapes"], entries, record, None)


def _ablations(out: Path) -> Iterator[Measured]:
    """Their rows, but for the cells of a grid, whose tasks are not kept."""
    for record in _readable(out / VERB):
        kept = {row["row"] for row in record.table(EPISODES)}
        results = {row["row"]: row["results"] for row in AblationRecord(record).rows}
        for of in record.config["rows"]:
            if of["row"] not in kept:
                continue
            method = {key: record.config[key] for key in _OF_ALL_ROWS} | {
                key: value
                for key, value in of.items()
                if key != "row" and (key, value) != ("variant", "plain")
            }
            for target in record.config["targets"]:
                yield Measured(
                    method, target["data_sets"], target["shapes"], results[of["row"]], record, of["row"]
                )


def _readable(folder: Path) -> Iterator[Record]:
    """The records in a folder, without damaged ones: their cells are measured again."""
    return filter(None, map(readable_record, record_folders(folder)))


def already_measured(
    known: Sequence[Measured],
    target: Target,
    of: TargetSet,
    place: int,
    method: MethodCells,
    *,
    tasks: int,
    seed: int,
) -> Cell | None:
    """The cell that one of these has measured with the same method on the same tasks, if one has.

    `place` is that of the task shape among the target's.
    """
    wanted = few_shot_config(target, method.loaded, tasks=tasks, seed=seed, method=method.config)
    data_set, shape = wanted["data_sets"][of.name], wanted["shapes"][place]
    wanted = {key: value for key, value in wanted.items() if key not in _OF_THE_TASKS}
    for one in known:
        if shape in one.shapes and one.data_sets.get(of.name) == data_set and one.method == wanted:
            return _cell(one, target, of, shape)
    return None


def _cell(found: Measured, target: Target, of: TargetSet, shape: Mapping[str, int | None]) -> Cell:
    keys = ("ways", "shots", "queries")
    entry = next(
        entry
        for entry in found.entries
        if entry["data_set"] == of.name and all(entry[key] == shape[key] for key in keys)
    )
    # The data set may have been asked for by its own name there, and has no domain then.
    place = {"target": target.name, "title": of.title, "domain": of.domain, "stand_in": of.stand_in}
    here = (of.name, entry["shape"], str(entry["queries"]))
    return Cell(
        {**entry, **place},
        found.rows(EPISODES, here),
        found.rows(RECALL, here) if found.has_recall else [],
        # Named by verb, name and id: where the folder lies is no part of a result.
        "/".join(found.record.path.parts[-3:]),
    )
