"""Whether an adaptation adapts, as tables and figures have it: four modulations, task encodings, distances of FiLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cl_cnaps.errors import BadInputError
from cl_cnaps.metrics.intervals import Array
from cl_cnaps.report.few_shot import data_set_words
from cl_cnaps.report.table import Column, Table, TableRow, accuracy, signed, words

if TYPE_CHECKING:
    from cl_cnaps.report.ablation import AblationView


def modulation_table(view: AblationView) -> Table:
    """The modulations on each data set, and how far own is above each of the others on the same tasks."""
    gaps = {one.row: one for one in view.differences()}
    rows = {row["row"]: row for row in view.rows}
    others = [key for key in rows if key in gaps]
    lines = []
    for index, one in enumerate(view.rows[0]["results"]):
        cells = [row["results"][index]["accuracy"] for row in rows.values()]
        means = [gaps[key].by_data_set[one["data_set"]] for key in others]
        lines.append(
            TableRow(
                [
                    words(data_set_words(one), view.href),
                    *(accuracy(cell["mean"], cell["ci95"], view.href) for cell in cells),
                    *(signed(-mean, half, view.href) for mean, half in means),
                ]
            )
        )
    if len(lines) > 1:
        overall = [accuracy(row["averages"]["all"]["accuracy"], None, view.href) for row in rows.values()]
        differences = [signed(-gaps[key].mean, gaps[key].half, view.href) for key in others]
        lines.append(TableRow([words("mean"), *overall, *differences]))
    columns = [Column(row["title"], chart=True) for row in rows.values()]
    titles = [f"own - {rows[key]['title'].lower()}" for key in others]
    headers = [Column("", numeric=False), *columns, *map(Column, titles)]
    return Table("", "accuracy, %, and what own FiLM brings on the same tasks, points", headers, lines)


def modulation_notes(view: AblationView) -> list[str]:
    """Return the notes on the columns, and on the distance of FiLM between data sets."""
    notes = [
        "Own: FiLM from each task's encoding. Static: from one encoding, the mean of the training sources. Swapped: "
        "from that of the training source farthest from the task. Frozen: no FiLM."
    ]
    if has_encodings(view):
        between, moved = film_ratio(view)
        notes.append(
            f"FiLM of data sets is {between:.3f} apart on average (root mean square over gammas and betas), and "
            f"{moved:.3f} from no FiLM."
        )
    return notes


def task_encodings(view: AblationView) -> tuple[list[str], Array]:
    """Return the title of the data set of each task whose encoding the record has, and the encodings T x 64."""
    table = pd.DataFrame(view.record.table("encodings"))
    titles = {one["data_set"]: data_set_words(one) for one in view.rows[0]["results"]}
    numbers = table.drop(columns=["data_set", "episode"]).to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise BadInputError(f"{view.path}: a task encoding is no finite number")
    return [titles[name] for name in table["data_set"]], numbers


def film_distances(view: AblationView) -> tuple[list[str], Array]:
    """Return the titles of data sets, with no FiLM last, and how far their modulations are apart."""
    table = view.record.table("film_distances")
    titles = {one["data_set"]: data_set_words(one) for one in view.rows[0]["results"]}
    names = list(dict.fromkeys(name for line in table for name in (line["first"], line["second"])))
    apart = np.zeros((len(names), len(names)))
    for line in table:
        i, j = names.index(line["first"]), names.index(line["second"])
        apart[i, j] = apart[j, i] = float(line["distance"])
    if not np.isfinite(apart).all():
        raise BadInputError(f"{view.path}: a distance is no finite number")
    return [titles.get(name, "no FiLM") for name in names], apart


def film_ratio(view: AblationView) -> tuple[float, float]:
    """Return the mean distance of FiLM between data sets, and from no FiLM."""
    _, apart = film_distances(view)
    of_sets = apart[:-1, :-1][np.triu_indices(len(apart) - 1, k=1)]
    return float(of_sets.mean()) if len(of_sets) else 0.0, float(apart[-1, :-1].mean())


def has_encodings(view: AblationView) -> bool:
    """Whether the record has task encodings and distances of modulations."""
    return all((view.path / f"{name}.csv").is_file() for name in ("encodings", "film_distances"))
