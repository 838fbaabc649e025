"""What a training writes down as it goes: a line of JSON per step or validation, and TensorBoard's curves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from cl_cnaps.data.atomic import write_text

LOG = "log.jsonl"


class TrainingLog:
    """log.jsonl and tensorboard/ in the folder of a run.

    A training that is resumed at some task forgets what was written of later ones, which it does again.
    """

    def __init__(self, folder: Path, tasks: int, counted_as: str = "tasks") -> None:
        self._path = folder / LOG
        self._counted_as = counted_as
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.is_file() else []
        write_text(self._path, "".join(f"{line}\n" for line in lines if self._is_before(line, tasks)))
        self._file = self._path.open("a", encoding="utf-8")
        self._curves = SummaryWriter(folder / "tensorboard", purge_step=tasks)

    def __enter__(self) -> TrainingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._curves.close()

    def add(self, kind: str, tasks: int, values: Mapping[str, Any]) -> None:
        """Note numbers (or tables of numbers) that belong to a number of tasks."""
        line = {self._counted_as: tasks, "kind": kind, **values}
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in values.items():
            if isinstance(value, Mapping):
                for part, number in value.items():
                    self._curves.add_scalar(f"{kind}/{name}/{part}", number, tasks)
            else:
                self._curves.add_scalar(f"{kind}/{name}", value, tasks)

    def _is_before(self, line: str, tasks: int) -> bool:
        try:
            return bool(json.loads(line)[self._counted_as] <= tasks)
        except (ValueError, KeyError):
            return False  # cut short by a kill
