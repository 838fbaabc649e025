"""A real Ray cluster of two nodes on this machine, one core each, heard on loopback only.

Slow (most of it Ray's and PyTorch's starting), and so run by `pytest -m slow`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sweeps.works import on_a_node

from cl_cnaps.errors import ClCnapsError
from cl_cnaps.records.record import Record, records_under
from cl_cnaps.sweeps.engines import Failure, RayEngine
from cl_cnaps.sweeps.sweep import Outcome, PlannedRun, sweep

pytestmark = pytest.mark.slow

NODE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"}
TESTS, PROJECT = Path(__file__).parents[1], Path(__file__).parents[2]
RECIPE = """
verb = "stream"
[paper]
labels = ["tab:continual-learning-results-table"]
data = "continual.toml"
[options]
backbone = "resnet18"
backbone-weights = "random"
image-size = 16
shots = 3
queries = 5
runs = 2
[[grid]]
model = ["simple", "transductive"]
encoding = ["first", "moving"]
[smoke.options]
runs = 1
"""


class Nodes:
    """The cluster: its address, and its second node to be killed."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        self.second = self._cluster.add_node(**NODE)
        self._cluster.wait_for_nodes(100)
        self.address = str(self._cluster.address)

    def kill_second(self) -> None:
        self._cluster.remove_node(self.second, allow_graceful=False)

    def shutdown(self) -> None:
        session = Path(self._cluster.head_node.get_session_dir_path())
        self._cluster.shutdown()
        shutil.rmtree(session, ignore_errors=True)


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray, where there is one, told not to replace 127.0.0.1 by an address that others can reach."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # read when ray is imported, so before that
    pytest.importorskip("ray", reason='needs Ray: pip install ".[ray]"')


@pytest.fixture
def nodes(loopback: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """Two nodes whose processes can import this project and its tests."""
    path = os.pathsep.join(filter(None, (str(PROJECT), str(TESTS), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
    monkeypatch.delenv("CL_CNAPS_DATA", raising=False)
    found = Nodes()
    yield found
    found.shutdown()


def run_recipe(tmp_path: Path, out: str, *options: str) -> list[dict[str, Any]]:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    done = subprocess.run(
        [sys.executable, str(PROJECT / "cli.py"), "sweep", "recipe.toml", "--out", out, "--json", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def numbers(record: Record) -> tuple[Any, ...]:
    """All that a record says, apart from when, where and how fast it was made."""
    rows = [{**row, "seconds": None} for row in record.summary["rows"]]
    return record.config, (record.path / "accuracy.csv").read_bytes(), {**record.summary, "rows": rows}


def test_results_equal_those_of_local_processes_to_the_last_digit(nodes: Nodes, tmp_path: Path) -> None:
    local = run_recipe(tmp_path, "local", "--workers", "2", "--threads", "1")
    ours = run_recipe(tmp_path, "ray", "--engine", "ray", "--address", nodes.address)
    assert [line["status"] for line in ours] == ["made"] * 4
    assert [line["headlines"] for line in ours] == [line["headlines"] for line in local]
    here, there = (list(records_under(tmp_path / out)) for out in ("local", "ray"))
    assert [numbers(record) for record in here] == [numbers(record) for record in there]
    assert all(record.environment["command"].startswith("cl-cnaps stream ") for record in there)
    again = run_recipe(tmp_path, "ray", "--engine", "ray", "--address", nodes.address)
    assert [line["status"] for line in again] == ["found"] * 4


def test_a_killed_node_costs_its_run_only_which_is_run_again(nodes: Nodes, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    doomed = nodes.second.node_id

    def kill() -> None:
        until = time.monotonic() + 100
        while not list(begun.glob(f"*-{doomed}-*")) and time.monotonic() < until:
            time.sleep(0.05)
        nodes.kill_second()

    names = [f"run{number}" for number in range(4)]
    runs = [PlannedRun(name, "tried", (name, str(begun))) for name in names]
    lost: list[str] = []

    def log(run: PlannedRun, _attempt: int, failure: Failure) -> None:
        lost.append(run.words)
        assert "lost on the cluster" in failure.reason

    killer = Thread(target=kill)
    killer.start()
    with RayEngine(on_a_node, nodes.address, None, 1) as engine:
        outcomes = list(sweep(runs, engine, tmp_path / "runs", threads=1, log=log))
    killer.join()
    assert {one.run.words: one.status for one in outcomes} == dict.fromkeys(names, "made")
    on_doomed = {path.name.split("-")[0] for path in begun.glob(f"*-{doomed}-*")}
    assert on_doomed, "the node was killed before it had anything to do"
    assert set(lost) == on_doomed
    assert len(lost) == 1
    assert attempts(outcomes) == {name: 2 if name in on_doomed else 1 for name in names}
    assert {record.name for record in records_under(tmp_path / "runs")} == set(names)


def attempts(outcomes: list[Outcome]) -> dict[str, int]:
    return {one.run.words: one.attempts for one in outcomes}


def test_no_cluster() -> None:
    with pytest.raises(ClCnapsError, match=r"no Ray cluster at 127\.0\.0\.1:1 \(.*refused\)"):
        RayEngine(on_a_node, "127.0.0.1:1", None, 1).__enter__()
