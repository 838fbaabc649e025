"""How a stream's costs grow: time per task and memory per class over 200 tasks, and how soon a stream starts.

1,000 classes in 200 tasks of five, five shots and five queries a class, of noise, on the default backbone at 32 pixels
so that what grows is not hidden behind embedding. A task's time is that of learning it and of answering its queries by
the multi head; scoring all tasks seen after every step takes longer with every task, whatever does it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import seconds
from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.stream import Stream, Task
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.loading import load_model

CLASSES_A_TASK, SHOTS, SIDE, FIRST = 5, 5, 32, 10
_FLAT_TIME, _FLAT_MEMORY = 1.1, 1.02


@dataclass(frozen=True)
class Growth:
    """One number a task: seconds, and bytes per class after it."""

    seconds: list[float]
    bytes_per_class: list[float]


def measure(quick: bool) -> Iterator[Figure]:
    """Flatness of the stream, then start-up."""
    growth = undisturbed([grow(40 if quick else 200) for _ in range(1 if quick else 3)])
    # Medians of a tenth of the tasks at either end: one interrupted task must not tilt a line.
    window = max(5, len(growth.seconds) // 10)
    early = statistics.median(growth.seconds[FIRST : FIRST + window])
    late = statistics.median(growth.seconds[-window:])
    details = {
        "first_ms": round(1000 * early, 1),
        "last_ms": round(1000 * late, 1),
        "slope_percent_of_a_task": round(100 * _slope(growth.seconds[FIRST:]), 3),
        "seconds": [round(value, 4) for value in growth.seconds],
        "bytes_per_class": [round(value) for value in growth.bytes_per_class],
    }
    yield Figure(
        "growth",
        f"time of a task, number {len(growth.seconds)} to number {FIRST}",
        round(late / early, 2),
        bar=_FLAT_TIME,
        at_least=False,
        details=details,
    )
    memory = growth.bytes_per_class[-1] / growth.bytes_per_class[FIRST - 1]
    yield Figure(
        "growth",
        f"memory per class, after task {len(growth.seconds)} to after task {FIRST}",
        round(memory, 3),
        bar=_FLAT_MEMORY,
        at_least=False,
        details={"bytes_per_class": round(growth.bytes_per_class[-1])},
    )
    yield _start_up(1 if quick else 5)


def undisturbed(growths: Sequence[Growth]) -> Growth:
    """Of each task the shortest time in several streams: what else the machine does can only add to it."""
    fastest = [min(times) for times in zip(*(one.seconds for one in growths), strict=True)]
    return Growth(fastest, growths[0].bytes_per_class)


def grow(tasks: int) -> Growth:
    """Learn a stream of noise."""
    with quiet_avalanche():
        from cl_cnaps.continual.cnaps_learner import CnapsLearner

    model = load_model("simple", weights="none", adaptation="none", image_size=SIDE, device="cpu").model
    learner = CnapsLearner(noise_stream(tasks), model, "first")
    spent, held = [], []
    for step in range(tasks):

        def one(step: int = step) -> None:
            learner.learn(step)
            learner.predict(step, "multi")

        spent.append(seconds(one))
        held.append(learner.memory_bytes() / ((step + 1) * CLASSES_A_TASK))
    return Growth(spent, held)


def noise_stream(tasks: int) -> Stream:
    """Tasks of five new classes each; a class is a colour with noise."""
    generator = torch.Generator().manual_seed(0)

    def images(colours: torch.Tensor) -> torch.Tensor:
        noise = torch.randint(0, 100, (CLASSES_A_TASK * SHOTS, 3, SIDE, SIDE), generator=generator)
        return (colours.repeat_interleave(SHOTS, dim=0) + noise).to(torch.uint8)

    made = []
    for number in range(tasks):
        ids = torch.arange(number * CLASSES_A_TASK, (number + 1) * CLASSES_A_TASK)
        colours = torch.randint(0, 150, (CLASSES_A_TASK, 3, 1, 1), generator=generator)
        labels = ids.repeat_interleave(SHOTS)
        made.append(
            Task(f"task {number}", tuple(ids.tolist()), images(colours), labels, images(colours), labels)
        )
    names = tuple(str(k) for k in range(tasks * CLASSES_A_TASK))
    return Stream("noise", names, tuple(made), "noise")


def _slope(values: list[float]) -> float:
    """Change per task as a share of the median, by the median of slopes between tasks half a stream apart."""
    half = len(values) // 2
    slopes = [(late - early) / half for early, late in zip(values[:half], values[half:], strict=False)]
    return statistics.median(slopes) / statistics.median(values)


def _start_up(rounds: int) -> Figure:
    """From the start of the process to its first line of progress, against importing what it cannot do without."""
    taken: dict[str, list[float]] = {"imports": [], "stream": []}
    for number in range(rounds + 1):
        spent = {"imports": _import_seconds(), "stream": _first_line_seconds()}
        for name, value in spent.items():
            if number:  # the first round fills the file cache
                taken[name].append(value)
    times = {name: statistics.median(values) for name, values in taken.items()}
    return Figure(
        "growth",
        "start of `cl-cnaps stream`, to importing torch, torchvision and avalanche",
        round(times["stream"] / times["imports"], 2),
        bar=1.5,
        at_least=False,
        details={f"{name}_s": round(value, 2) for name, value in times.items()},
    )


def _import_seconds() -> float:
    # The first import lets torchvision be imported beside a PyTorch without CUDA, and imports nothing else.
    program = "import cl_cnaps, torch, torchvision, avalanche"
    command = [sys.executable, "-W", "ignore", "-c", program]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def _first_line_seconds() -> float:
    program = "from cl_cnaps.commands.main import main; main()"
    with tempfile.TemporaryDirectory(prefix="cl-cnaps-start-") as out:
        command = [sys.executable, "-W", "ignore", "-c", program, "stream", "--runs", "1", "--out", out]
        start = time.perf_counter()
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            spent = time.perf_counter() - start
            process.kill()
    if "1 runs of 5 tasks" not in line:
        raise ClCnapsError(f"`cl-cnaps stream` began with {line!r} and not with its plan")
    return spent
