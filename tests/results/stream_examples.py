"""Small made-up streams to write records of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cl_cnaps.results.record import record_name
from cl_cnaps.results.streams import StreamRecord, write_stream_record

MEASURED = {"seconds": 12.5, "memory_bytes": 6_500_000, "data_source": "made up", "weights_source": "none"}


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


def rows(n_tasks: int, runs: int, heads: list[str]) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    return [
        {
            "run": run,
            "step": step,
            "task": task,
            "head": head,
            "accuracy": float(draw.random()),
            "n_queries": 40,
        }
        for run in range(runs)
        for step in range(n_tasks)
        for task in range(step + 1)
        for head in heads
    ]


def stream_record(out: Path, n_tasks: int = 3, **changes: Any) -> StreamRecord:
    asked = config(**changes)
    return write_stream_record(
        out,
        record_name(asked["benchmark"]),
        asked,
        rows(n_tasks, asked["runs"], asked["heads"]),
        task_names=[f"classes {2 * i} and {2 * i + 1}" for i in range(n_tasks)],
        summary_extra=MEASURED,
        environment_extra={"seeds": [0], "data": {}, "weights": {}},
    )
