"""What a reader must know before reading anything into an ablation: said under every table of one."""

from __future__ import annotations

from cl_cnaps.evaluation.ablations import left_out
from cl_cnaps.results.ablation import AblationRecord
from cl_cnaps.results.ablation_values import printed_rows
from cl_cnaps.results.few_shot_notes import data_set_notes

_FROZEN = {
    "transduction": "Without adaptation there is no task encoding: FEOT is Simple CNAPS, and COT Transductive CNAPS.",
    "refinement": "Without adaptation there is no task encoding: No Refinements is Simple CNAPS.",
}


def notes(record: AblationRecord, *, data_sets: bool = True) -> list[str]:
    """Sentences, most important first; those on each data set may be left to a page that says them once."""
    rows = record.rows
    said = [_weights(record)]
    if rows[0]["adaptation"] == "none" and record.which in _FROZEN:
        said.append(_FROZEN[record.which])
    if record.which == "metric":
        said.append(
            "Root Riemannian decides as squared Mahalanobis does with the same weights; it differs in training. The "
            "paper prints no figures of the other metrics out of domain: tab:results:metric-ablations-2 repeats -1."
        )
    said += [
        f"{one.title} is left out: it differs in training alone. Give weights trained so with --weights {one.key}=FILE."
        for one in left_out(record.which, [row["row"] for row in rows])
        if one.own_weights
    ]
    about = data_set_notes(rows[0]["results"])
    said += about if data_sets else [note for note in about if note.startswith("* ")]
    labels = [entry["paper"]["label"] for row in rows for entry in row["results"] if entry["paper"]]
    if labels:
        each = sorted({one for label in labels for one in label.split(", ")})
        said.append(f"Paper: {', '.join(each)}; averages over the same data sets.")
    if record.missing:
        said.append(f"Missing: {', '.join(one['title'] for one in record.missing)}.")
    if rows[0]["results"][0]["accuracy"]["ci95"] is not None:
        said.append("±: 95 % interval, 1.96 std / sqrt(n), over tasks; of recall over classes.")
    return said


def _weights(record: AblationRecord) -> str:
    """Whose weights the rows have: where the paper trained each anew, this compares them at test time."""
    printed = [row["row"] for row in printed_rows(record)]
    sources: dict[str, dict[str, None]] = {}  # the titles in their order, each once
    for row in record.rows:
        title = row["title"] if row["row"] in printed else "the other cells of the grid"
        sources.setdefault(row["weights_source"], {})[title] = None
    if len(sources) == 1:
        whose = f"All rows have the same weights: {next(iter(sources))}."
    else:
        whose = "Weights: " + "; ".join(f"{source} ({', '.join(t)})" for source, t in sources.items()) + "."
    if record.which in ("shots", "queries", "refinement"):
        return whose
    return f"{whose} Rows that share weights differ at test time alone; the paper trained each."
