"""A sweep on two real Ray nodes, to the same sweep on one of them.

The nodes are on this machine and take a core each, so that two nodes have twice what one has, as two machines would.
Runs of the default stream on the digits of the installation, through the engine as `cl-cnaps sweep --engine ray` uses
it: joining the cluster, the workers' imports and the way of every record to the head are in the time. In turns, after
a sweep that warms up: the second node joins before every other sweep and leaves after it. Without Ray there are no
figures.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import ratio, seconds
from cl_cnaps.commands.sweep_runs import do
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.sweeps.engines import Failure, RayEngine
from cl_cnaps.sweeps.sweep import PlannedRun, sweep

RUNS, REPEATS, BAR = 8, 3, 1.8
_NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"}
_ROOT = Path(__file__).parents[2]
_ENVIRONMENT = {
    "PYTHONPATH": str(_ROOT),
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else Ray replaces 127.0.0.1 by an address that others can reach
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "CL_CNAPS_DATA": "",
}


def measure(quick: bool) -> Iterator[Figure]:
    """One node and two, in turns."""
    if importlib.util.find_spec("ray") is None:
        return
    os.environ.update(_ENVIRONMENT)  # before Ray is imported; its nodes and their workers take it over
    small = ["--shots", "2", "--queries", "2", "--image-size", "32"] if quick else []
    runs = [
        PlannedRun(
            f"seed {seed}", "stream", ("--model", "simple", "--runs", "1", "--seed", str(seed), *small)
        )
        for seed in range(2 if quick else RUNS)
    ]
    one, two = [], []
    with _head() as cluster:
        _sweep(runs[:1], cluster.address)
        for _ in range(1 if quick else REPEATS):
            one.append(seconds(lambda: _sweep(runs, cluster.address)))
            second = cluster.add_node(**_NODE)
            cluster.wait_for_nodes(100)
            two.append(seconds(lambda: _sweep(runs, cluster.address)))
            cluster.remove_node(second)
    value, spread = ratio(one, two)
    details = {
        **spread,
        "runs": len(runs),
        "one_node_s": [round(spent, 1) for spent in one],
        "two_nodes_s": [round(spent, 1) for spent in two],
    }
    yield Figure("cluster", "a sweep on two Ray nodes, to one", value, bar=BAR, details=details)


@contextmanager
def _head() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**_NODE, "include_dashboard": False})
    session = Path(cluster.head_node.get_session_dir_path())
    try:
        yield cluster
    finally:
        cluster.shutdown()
        shutil.rmtree(session, ignore_errors=True)


def _sweep(runs: list[PlannedRun], address: str) -> None:
    def log(run: PlannedRun, _attempt: int, failure: Failure) -> None:
        raise ClCnapsError(f"{run.words}: {failure.reason}")

    with (
        tempfile.TemporaryDirectory(prefix="cl-cnaps-cluster-") as out,
        RayEngine(do, address, None, 1) as engine,
    ):
        made = [outcome.status for outcome in sweep(runs, engine, Path(out), threads=1, log=log)]
    if made != ["made"] * len(runs):
        raise ClCnapsError(f"{made.count('made')} of {len(runs)} runs were made")
