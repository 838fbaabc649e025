"""Beyond one machine: what a sweep on 1,000 machines and a meta-training on 64 GPUs come to, by simulation.

Measured here: the time to write a record, the bytes of one, the numbers whose gradients are summed over GPUs, and the
time to embed an image. Assumed: `ASSUMED`, each on the slow side of what is usual. A sweep is simulated run by run:
machines ask one head node for runs, and hand it records that it writes one after the other.
"""

from __future__ import annotations

import heapq
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.speed.figures import Figure
from benchmarks.speed.report import make_records
from benchmarks.speed.timing import seconds
from cl_cnaps.models.loading import load_model
from cl_cnaps.records.record import put_record, records_under


@dataclass(frozen=True)
class Assumed:
    """What cannot be measured on one machine."""

    machines: int = 1000
    run_s: float = 60.0
    """A run of the default stream."""
    dispatch_s: float = 0.005
    """The head's work to hand out one run."""
    gpus: int = 64
    gpu_speed: float = 50.0
    """Images embedded a second by a GPU, to those by one core here."""
    images_a_task: int = 100
    backward: float = 2.0
    """Work of a backward pass, to that of a forward pass."""
    link_bytes_s: float = 1.25e9
    """Of the network between GPUs: 10 Gbit a second."""
    message_s: float = 50e-6
    image_bytes: int = 96 * 96 * 3


ASSUMED = Assumed()


def measure(quick: bool) -> Iterator[Figure]:
    """The sweep, then the training."""
    write_s, size = _record(20 if quick else 200)
    yield Figure("scaling", "records written a second by one head node", round(1 / write_s), "a second")
    head_s = write_s + ASSUMED.dispatch_s
    busy = simulated(ASSUMED.machines, ASSUMED.run_s, head_s, runs=4 * ASSUMED.machines)
    details = {"head_ms_a_run": round(1000 * head_s, 2), "bytes_a_record": size, "assumed": asdict(ASSUMED)}
    what = f"{ASSUMED.machines} machines, one run at a time on each: time at work"
    yield Figure("scaling", what, round(100 * busy, 1), "%", details=details)
    yield Figure(
        "scaling",
        "machines that one head node serves, runs of a minute",
        round(ASSUMED.run_s / head_s),
        "machines",
        details={
            str(n): round(100 * simulated(n, ASSUMED.run_s, head_s, 4 * n), 1) for n in (100, 3000, 10_000)
        },
    )
    yield from _training(quick)


def _record(number: int) -> tuple[float, int]:
    """Seconds to write a record that came over the network, and its bytes."""
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
    return spent / len(records), sum(len(part) for content in files for part in content.values()) // len(
        records
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
    rate = 64 / seconds(lambda: model.embed_folded(images, network)) * ASSUMED.gpu_speed
    numbers = sum(
        part.numel() for module in (model.adaptation, model.task_encoder) for part in module.parameters()
    )
    gradient_bytes = 4 * numbers
    step_s = ASSUMED.images_a_task * (1 + ASSUMED.backward) / rate
    # A ring: every GPU sends and receives the gradients twice, in 2 (N - 1) messages.
    exchange_s = 2 * gradient_bytes / ASSUMED.link_bytes_s + 2 * (ASSUMED.gpus - 1) * ASSUMED.message_s
    reading = ASSUMED.gpus * ASSUMED.images_a_task / (step_s + exchange_s) * ASSUMED.image_bytes
    details = {
        "gradient_mb": round(gradient_bytes / 1e6, 1),
        "step_ms": round(1000 * step_s, 1),
        "exchange_ms": round(1000 * exchange_s, 1),
        "images_read_gb_s": round(reading / 1e9, 2),
    }
    what = f"{ASSUMED.gpus} GPUs, a task each a step: speed, to as many times one"
    yield Figure("scaling", what, round(step_s / (step_s + exchange_s), 2), details=details)
