"""Small made-up streams to write records of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from report.editing import editable

from cl_cnaps.experiments.stream import stream_row
from cl_cnaps.records.record import record_name, write_record
from cl_cnaps.report.stream import StreamView

MEASURED = {
    "seconds": 12.5,
    "memory_bytes": 6_500_000,
    "data_source": "made up",
    "weights_source": "none",
    "backbone_pretraining": "none",
}


def config(**changes: Any) -> dict[str, Any]:
    plain = {
        "model": "simple",
        "encoding": "first",
        "heads": ["multi", "single"],
        "benchmark": "split-mnist",
        "backbone": "tiny",
        "adaptation": "none",
        "shots": 100,
        "queries": 20,
        "runs": 2,
        "seed": 0,
    }
    return plain | changes


def rows(n_tasks: int, runs: int, heads: list[str], base_queries: int = 40) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [
        {
            "run": run,
            "step": step,
            "task": task,
            "head": head,
            "accuracy": float(draw.random()),
            "n_queries": 40 if task else base_queries,
        }
        for run in range(runs)
        for step in range(n_tasks)
        for task in range(step + 1)
        for head in heads
    ]


def stream_record(out: Path, n_tasks: int = 3, base_queries: int = 40, **changes: Any) -> StreamView:
    identity = config(**changes)
    table = rows(n_tasks, identity["runs"], identity["heads"], base_queries)
    cnaps = identity["encoding"] is not None
    settings = {"metric": "mahalanobis", "variant": "plain"} if cnaps else {"metric": None, "variant": None}
    if identity["model"] == "protonet":
        settings["metric"] = "euclidean"
    record = write_record(
        out,
        "stream",
        record_name(identity["benchmark"]),
        identity,
        environment={"finished": "2026-11-18T00:00:00+00:00", "command": None, "code": {"commit": None}},
        tables={"accuracy": table},
        summary={
            "verb": "stream",
            "name": record_name(identity["benchmark"]),
            "rows": [
                {**stream_row(identity, table, head), **settings, **MEASURED} for head in identity["heads"]
            ],
            "tasks": [f"classes {2 * i} and {2 * i + 1}" for i in range(n_tasks)],
        },
    )
    return StreamView(editable(record))
