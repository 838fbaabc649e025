"""Beyond one machine: what a sweep on 1,000 machines and a meta-training on 64 GPUs come to, by simulation.

Measured here: the time to write a record and to look for those that are there, the bytes of a record and of what is
sent with a run, the numbers whose gradients are summed over GPUs, and the time to embed an image with one thread.
Assumed: `ASSUMED`. A sweep is simulated run by run: machines ask one head node for runs, and hand it records that it
writes one after the other; before it hands out a run it looks for all records that are there.
"""

from __future__ import annotations

import heapq
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.speed.figures import Figure
from benchmarks.speed.report import make_records
from benchmarks.speed.timing import seconds
from cl_cnaps.commands.sweep_runs import do
from cl_cnaps.few_shot.workers import one_thread
from cl_cnaps.models.loading import load_model
from cl_cnaps.records.record import put_record, records_under
from cl_cnaps.sweeps.engines import RayEngine
from cl_cnaps.sweeps.sweep import PlannedRun, make_task
from cl_cnaps.training.ranks import GATHERED


@dataclass(frozen=True)
class Assumed:
    """What cannot be measured on one machine."""

    machines: int = 1000
    runs_a_machine: int = 4
    run_s: float = 60.0
    """About that of the default stream."""
    dispatch_s: float = 0.005
    """The head's work to hand out one run, beside looking for records."""
    gpus: int = 64
    gpu_speed: float = 50.0
    """Images embedded a second by a GPU, to those by one core here."""
    images_a_task: int = 100
    backward: float = 2.0
    """Work of a backward pass, to that of a forward pass."""
    link_bytes_s: float = 1.25e9
    """Of the network between GPUs: 10 Gbit a second."""
    message_s: float = 50e-6


ASSUMED = Assumed()


def measure(quick: bool) -> Iterator[Figure]:
    """The sweep, then the training."""
    head = _head(20 if quick else 200)
    yield Figure("scaling", "records written a second by one head node", round(1 / head.write_s), "a second")
    runs = ASSUMED.runs_a_machine * ASSUMED.machines
    busy = simulated(ASSUMED.machines, ASSUMED.run_s, head.seconds_a_run(runs), runs)
    details = {
        "head_ms_a_run": round(1000 * head.seconds_a_run(runs), 2),
        "look_us_a_record": round(1e6 * head.look_s_a_record, 1),
        "bytes_a_record": head.bytes_a_record,
        "bytes_sent_with_a_run": head.name_bytes * runs // 2,
        "machine_hours": round(runs * ASSUMED.run_s / 3600 / busy, 1),
        "assumed": asdict(ASSUMED),
    }
    what = f"{ASSUMED.machines} machines, {ASSUMED.runs_a_machine} runs of a minute on each: time at work"
    yield Figure("scaling", what, round(100 * busy, 1), "%", details=details)
    details = {}
    for machines in (100, 300, 3000, 10_000):
        runs = ASSUMED.runs_a_machine * machines
        share = simulated(machines, ASSUMED.run_s, head.seconds_a_run(runs), runs)
        details[str(machines)] = round(100 * share, 1)
    what = "machines that one head node serves at its first records, runs of a minute"
    yield Figure(
        "scaling", what, round(ASSUMED.run_s / head.seconds_a_run(0)), "machines", details={"%": details}
    )
    yield from _training(quick)


class Head(NamedTuple):
    """What the head node does for a run."""

    write_s: float
    look_s_a_record: float
    bytes_a_record: int
    name_bytes: int
    """Of a record that is there; the names of all are sent with a run."""

    def seconds_a_run(self, runs: int) -> float:
        """Mean over a sweep of so many runs, each of which leaves one more record to look for."""
        return self.write_s + ASSUMED.dispatch_s + self.look_s_a_record * runs / 2


def _head(number: int) -> Head:
    """Write records that came over the network, then look for them as a sweep does before each run."""
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-scaling-") as folder:
        make_records(Path(folder) / "made", number)
        records = list(records_under(Path(folder) / "made"))
        files = [
            {file.name: file.read_bytes() for file in record.path.iterdir() if file.is_file()}
            for record in records
        ]
        out = Path(folder) / "out"

        def write() -> None:
            for record, content in zip(records, files, strict=True):
                put_record(out, record.verb, record.name, content)

        spent = seconds(write)
        names = [record.path.relative_to(Path(folder) / "made").as_posix() for record in records]
        known = set(names)
        run, engine = PlannedRun("", "stream", ()), RayEngine(do, None, None, 1)
        look = seconds(lambda: make_task(run, engine, out, 1, look_only=False, keep=None, readable=known))
    return Head(
        spent / number,
        look / number,
        sum(len(part) for content in files for part in content.values()) // number,
        sum(map(len, names)) // number,
    )


def simulated(machines: int, run_s: float, head_s: float, runs: int) -> float:
    """Share of the time that machines are at work, where one head serves them in the order in which they come."""
    rng = random.Random(0)
    waiting = [(0.0, number) for number in range(machines)]  # when each machine next needs the head
    heapq.heapify(waiting)
    free_at = work = end = 0.0
    for _ in range(runs):
        asked_at, number = heapq.heappop(waiting)
        free_at = max(free_at, asked_at) + head_s
        taken = run_s * rng.lognormvariate(0, 0.3)
        work += taken
        end = max(end, free_at + taken)
        heapq.heappush(waiting, (free_at + taken, number))
    return work / (machines * end)


def _training(quick: bool) -> Iterator[Figure]:
    model = load_model("simple", device="cpu", image_size=32 if quick else None).model
    size = model.backbone.info.image_size
    images = torch.zeros(64, 3, size, size, dtype=torch.uint8)
    network = model.fold(model.adapt(model.encode(images[:10], torch.arange(10) % 2)))
    model.embed_folded(images, network)
    with one_thread():
        rate = 64 / seconds(lambda: model.embed_folded(images, network)) * ASSUMED.gpu_speed
    numbers = sum(
        part.numel() for module in (model.adaptation, model.task_encoder) for part in module.parameters()
    )
    gradient_bytes = 4 * numbers
    step_s = ASSUMED.images_a_task * (1 + ASSUMED.backward) / rate
    # More than `GATHERED` add up in a ring: each sends and receives the gradients twice, in 2 (N - 1) messages.
    assert ASSUMED.gpus > GATHERED
    exchange_s = 2 * gradient_bytes / ASSUMED.link_bytes_s + 2 * (ASSUMED.gpus - 1) * ASSUMED.message_s
    reading = ASSUMED.gpus * ASSUMED.images_a_task / (step_s + exchange_s) * images[0].numel()
    details = {
        "gradient_mb": round(gradient_bytes / 1e6, 1),
        "gpu_hours_of_20000_tasks": round(20_000 * (step_s + exchange_s) / 3600, 1),
        "step_ms": round(1000 * step_s, 1),
        "exchange_ms": round(1000 * exchange_s, 1),
        "images_read_gb_s": round(reading / 1e9, 2),
    }
    what = f"{ASSUMED.gpus} GPUs, a task each a step: speed, to as many times one"
    yield Figure("scaling", what, round(step_s / (step_s + exchange_s), 2), details=details)
