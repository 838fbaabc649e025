"""Records of `cl-cnaps stream`: one model and encoding on one benchmark, with every head that was scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.results.continual import Array, accuracy_matrix, summarise
from cl_cnaps.results.environment import describe_environment
from cl_cnaps.results.paper import paper_figure
from cl_cnaps.results.record import Record, read_record, record_path, records_under, write_record
from cl_cnaps.results.wording import is_plain

VERB = "stream"
TABLE = "accuracy"
COLUMNS = ("run", "step", "task", "head", "accuracy", "n_queries")
CONFIG_KEYS = ("model", "encoding", "benchmark", "backbone", "adaptation", "shots", "queries", "runs")
MEASURED_KEYS = ("seconds", "memory_bytes", "data_source", "weights_source")

Summary = dict[str, Any]
"""One head's entry in summary.json, and one line of `cl-cnaps stream --json`."""


@dataclass(frozen=True)
class StreamRecord:
    """A stream's record with its raw accuracies."""

    record: Record
    rows: list[dict[str, Any]]

    @property
    def path(self) -> Path:
        """The record's folder."""
        return self.record.path

    @property
    def summaries(self) -> list[Summary]:
        """One entry per head."""
        return list(self.record.summary["heads"])

    @property
    def task_names(self) -> list[str]:
        """What the tasks are called, in the order of learning."""
        return list(self.record.summary["tasks"])

    def accuracy(self, head: str) -> Array:
        """A[run, step, task] of one head; NaN where the task had not been seen."""
        return accuracy_matrix(self.rows, head)


def stream_summaries(
    config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]
) -> list[Summary]:
    """The figures of every head in `rows`, with what was asked for and measured beside them.

    Accuracies are fractions; `ci95` is half the width of the interval over runs, null for a single run.
    Forgetting and backward transfer are null for a stream of one task.
    """
    _require("config", config, CONFIG_KEYS)
    _require("summary_extra", measured, MEASURED_KEYS)
    if not rows:
        raise BadInputError("the stream has no accuracies")
    plain_rows = [dict(row) for row in rows]
    summaries = []
    for head in dict.fromkeys(row["head"] for row in plain_rows):
        accuracy = accuracy_matrix(plain_rows, head)
        if len(accuracy) != config["runs"]:
            raise BadInputError(
                f"{config['runs']} runs were asked for, the {head} head has accuracies of {len(accuracy)}"
            )
        figures = summarise(accuracy)
        entry: Summary = {"model": config["model"], "encoding": config["encoding"], "head": head}
        entry |= {key: config[key] for key in CONFIG_KEYS if key not in entry}
        entry |= method_settings(config)
        entry["final_accuracy"] = asdict(figures.final_accuracy)
        for key in ("forgetting", "backward_transfer", "average_incremental_accuracy"):
            figure = getattr(figures, key)
            entry[key] = None if figure is None else figure.mean
            entry[f"{key}_ci95"] = None if figure is None else figure.ci95
        entry["paper"] = _paper_entry(config, head)
        if clash := sorted(entry.keys() & measured.keys()):
            raise BadInputError(f"summary_extra names {', '.join(clash)}, which the record works out itself")
        summaries.append(entry | dict(measured))
    return summaries


def write_stream_record(
    out: Path,
    name: str,
    config: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    task_names: Sequence[str],
    summary_extra: Mapping[str, Any],
    environment_extra: Mapping[str, Any],
) -> StreamRecord:
    """Write `<out>/stream/<name>/<id>/`, replacing a record of the same configuration.

    `config` has at least CONFIG_KEYS, `summary_extra` at least MEASURED_KEYS; every row has at least COLUMNS,
    with runs, steps and tasks counted from 0. `environment_extra` adds seeds and digests of data and weights.
    """
    for number, row in enumerate(rows):
        _require(f"row {number} of the accuracies", row, COLUMNS)
    heads = stream_summaries(config, rows, summary_extra)
    tasks = 1 + max(int(row["task"]) for row in rows)
    if len(task_names) != tasks:
        raise BadInputError(
            f"the stream has {tasks} tasks but {len(task_names)} task names: {list(task_names)}"
        )
    place = record_path(out, VERB, name, config)
    record = write_record(
        out,
        VERB,
        name,
        config,
        environment=describe_environment(environment_extra),
        tables={TABLE: rows},
        summary={"verb": VERB, "name": name, "id": place.name, "tasks": list(task_names), "heads": heads},
    )
    return _with_rows(record)


def read_stream_record(path: Path) -> StreamRecord:
    """The stream record in the folder `path`."""
    record = read_record(path)
    if record.summary.get("verb") != VERB:
        raise BadInputError(f"{path} is a record of {record.summary.get('verb')!r}, not of a stream")
    return _with_rows(record)


def stream_records(paths: Iterable[Path]) -> list[StreamRecord]:
    """The stream records at or below `paths`, each once; other verbs' records are passed over."""
    found: dict[Path, Record] = {}
    for path in paths:
        streams = [record for record in records_under(path) if record.summary.get("verb") == VERB]
        if not streams:
            raise MissingDataError(
                f"{path} is no stream record and holds none; `cl-cnaps stream` makes one and names it"
            )
        for record in streams:
            found.setdefault(record.path.resolve(), record)
    return [_with_rows(record) for record in found.values()]


def _with_rows(record: Record) -> StreamRecord:
    rows: list[dict[str, Any]] = [
        {**row, "run": int(row["run"]), "step": int(row["step"]), "task": int(row["task"])}
        | {"accuracy": float(row["accuracy"]), "n_queries": int(row["n_queries"])}
        for row in record.table(TABLE)
    ]
    return StreamRecord(record, rows)


def _paper_entry(config: Mapping[str, Any], head: str) -> dict[str, Any] | None:
    """The paper's cell in per cent; none for other shots, metrics and variants, which the paper did not measure."""
    if not is_plain({"model": config["model"], **method_settings(config)}):
        return None
    figure = paper_figure(
        benchmark=config["benchmark"], model=config["model"], encoding=config["encoding"], head=head
    )
    if figure is None or figure.shots != config["shots"]:
        return None
    return {"mean": figure.mean, "interval": figure.interval, "unit": "percent", "label": figure.label}


def method_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Metric and variant of a CNAPS model, as the configuration of its record has them; None of a baseline."""
    settings = config.get("model_config")
    if settings is None:
        return {"metric": None, "variant": None}
    return {"metric": settings["metric"], "variant": settings.get("variant", "plain")}


def _require(what: str, given: Mapping[str, Any], keys: Sequence[str]) -> None:
    if missing := [key for key in keys if key not in given]:
        raise BadInputError(f"{what} lacks {', '.join(missing)}")
