"""Records of finished experiments: written whole, read as a table (`read_results`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cl_cnaps.errors import MissingDataError
from cl_cnaps.records.record import Record, records_under

if TYPE_CHECKING:
    import pandas as pd


def read_results(folder: str | Path = "results") -> pd.DataFrame:
    """Read the rows of every record below `folder`: one row for each number that an experiment is for.

    Columns are those of `--json` (nested ones with dots, such as `accuracy.mean`), then `verb`, `name`, `id`, `path`,
    `finished` and `seed` of the record. Accuracies are fractions of 1. What a kind of experiment does not have is None.
    """
    import pandas as pd

    if not Path(folder).is_dir():
        raise MissingDataError(f"{folder} is no folder of records")
    rows = [row for record in records_under(Path(folder)) for row in record_rows(record)]
    frame = pd.json_normalize(rows, max_level=1)
    return frame.astype(object).where(frame.notna(), None)


def record_rows(record: Record) -> list[dict[str, Any]]:
    """Return the rows of a record with what names it; of an ablation one for each method and data set."""
    about = {
        "verb": record.verb,
        "name": record.name,
        "id": record.id,
        "path": record.path.as_posix(),
        "finished": record.environment.get("finished"),
        "seed": record.config.get("seed"),
    }
    rows = []
    for row in record.summary.get("rows", []):
        cells = row.get("results", [{}])
        of_row = {key: value for key, value in row.items() if key not in ("results", "averages")}
        rows += [{**of_row, **cell, "row_title": of_row.get("title"), **about} for cell in cells]
    return rows
