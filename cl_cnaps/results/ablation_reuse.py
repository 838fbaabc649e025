"""What evaluations have measured already: cells of an ablation that need not be measured again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cl_cnaps.errors import MissingDataError
from cl_cnaps.evaluation.targets import Target, TargetSet
from cl_cnaps.results.ablation import Cell, MethodCells
from cl_cnaps.results.few_shot import EPISODES, RECALL, VERB, FewShotRecord, few_shot_config, few_shot_records

_OF_THE_TASKS = ("target", "data_sets", "shapes")
"""Keys of an evaluation's configuration that are compared data set by data set."""


def evaluations_under(out: Path) -> list[FewShotRecord]:
    """The records of evaluations in a folder of records."""
    try:
        return few_shot_records([out / VERB])
    except MissingDataError:
        return []


def from_evaluation(
    known: Sequence[FewShotRecord],
    target: Target,
    of: TargetSet,
    place: int,
    method: MethodCells,
    *,
    tasks: int,
    seed: int,
) -> Cell | None:
    """The cell that one of these evaluations has measured with the same method on the same tasks, if one has.

    `place` is that of the task shape among the target's.
    """
    wanted = few_shot_config(target, method.loaded, tasks=tasks, seed=seed, method=method.config)
    data_set, shape = wanted["data_sets"][of.name], wanted["shapes"][place]
    wanted = {key: value for key, value in wanted.items() if key not in _OF_THE_TASKS}
    for record in known:
        config = record.record.config
        rest = {key: value for key, value in config.items() if key not in _OF_THE_TASKS}
        same_tasks = shape in config["shapes"] and config["data_sets"].get(of.name) == data_set
        if same_tasks and rest == wanted:
            return _cell(record, target, of, shape)
    return None


def _cell(record: FewShotRecord, target: Target, of: TargetSet, shape: dict[str, int | None]) -> Cell:
    keys = ("ways", "shots", "queries")
    entry = next(
        entry
        for entry in record.entries
        if entry["data_set"] == of.name and all(entry[key] == shape[key] for key in keys)
    )
    # The data set may have been asked for by its own name there, and has no domain then.
    place = {"target": target.name, "title": of.title, "domain": of.domain, "stand_in": of.stand_in}
    here = (of.name, entry["shape"], str(entry["queries"]))
    episodes, recall = (
        [
            dict(row)
            for row in record.record.table(table)
            if (row["data_set"], row["shape"], row["queries"]) == here
        ]
        for table in (EPISODES, RECALL)
    )
    # Named by verb, name and id: where the folder lies is no part of a result.
    return Cell({**entry, **place}, episodes, recall, "/".join(record.path.parts[-3:]))
