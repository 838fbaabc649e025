"""Every verb at its smallest, in a process of its own: what tests kill, interrupt and starve."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from cl_cnaps.commands import run as run_command

FORK = multiprocessing.get_context("fork")
MODULES = (
    "timm", "matplotlib.pyplot", "pandas", "scipy.stats", "sklearn.neighbors", "tensorboard",
    "cl_cnaps.commands.main", "cl_cnaps.commands.sweep", "cl_cnaps.commands.sweep_runs",
    "cl_cnaps.commands.train", "cl_cnaps.commands.learn", "cl_cnaps.commands.report", "cl_cnaps.commands.data",
    "cl_cnaps.report.view",
    "cl_cnaps.report.site", "cl_cnaps.experiments.stream", "cl_cnaps.experiments.few_shot",
    "cl_cnaps.experiments.active", "cl_cnaps.experiments.ablation", "cl_cnaps.continual.cnaps_learner",
    "cl_cnaps.training.metatrain", "cl_cnaps.training.pretrain", "cl_cnaps.classifier", "cl_cnaps.data.conversion",
)  # fmt: skip
ROOT = Path(__file__).parents[2]
MODEL = ["--backbone", "timm:test_resnet", "--backbone-weights", "random", "--image-size", "32", "--no-plots"]
SWEEP = """
verb = "stream"
[paper]
labels = ["tab:continual-learning-results-table"]
[options]
benchmark = "folder:images"
backbone = "timm:test_resnet"
backbone-weights = "random"
image-size = 32
classes-per-task = 2
shots = 3
queries = 3
runs = 1
[[grid]]
encoding = ["first", "moving"]
[smoke.options]
runs = 1
"""
TRAINING = """
backbone_weights = "random"
[model]
model = "simple"
backbone = "timm:test_resnet"
image_size = 32
encoder = { norm = "batch", image_size = 32 }
[tasks]
ways = [2, 2]
shots = [1, 2]
queries = 2
[[sources]]
name = "folder:images"
classes = "fractions"
train = "TRAIN"
validate = "VALID"
fractions = [0.5, 0.5, 0.0]
[training]
tasks = 12
tasks_per_step = 2
learning_rate = 1e-3
checkpoint_every = 2
[validation]
every = 8
tasks = 2
"""
PRETRAINING = """
backbone = "timm:test_resnet"
image_size = 32
epochs = 2
batch_size = 4
learning_rate = 0.1
checkpoint_every = 2
[source]
name = "folder:images"
classes = "fractions"
train = "TRAIN"
fractions = [1.0, 0.0, 0.0]
"""
STREAM = ["--benchmark", "folder:images", "--classes-per-task", "2", "--shots", "3", "--queries", "3"]
VERBS: Mapping[str, list[str]] = {
    "stream": ["stream", *STREAM, "--runs", "3", "--encoding", "first", *MODEL],
    "evaluate": ["evaluate", "folder:images", "--tasks", "6", "--ways", "3", "--shots", "1,2", "--queries", "3",
                 "--workers", "2", *MODEL],
    "active": ["active", "--source", "folder:images", "--adaptation", "none", "--initial", "1", "--rounds", "2",
               "--runs", "2", "--pool", "3", "--test", "3", "--workers", "1", *MODEL],
    "ablate": ["ablate", "queries", "--sources", "folder:many", "--tasks", "1", "--workers", "1", *MODEL],
    "sweep": ["sweep", "sweep.toml", "--workers", "2"],
    "metatrain": ["metatrain", "training.toml", "--workers", "1"],
    "pretrain": ["pretrain", "pretraining.toml", "--workers", "1"],
    "learn": ["learn", "images", "--backbone", "timm:test_resnet", "--backbone-weights", "random", "--out",
              "pets.safetensors"],
    "report": ["report", "records", "--out", "site"],
    "plot": ["plot", "records", "--out", "figures", "--format", "png"],
    "data add": ["data", "add", "images", "--name", "mine", "--replace"],
    "data convert": ["data", "convert", "folder:images", "--fractions", "0.5", "0.25", "0.25", "--out", "converted"],
    "data verify": ["data", "verify", "folder:images"],
}  # fmt: skip
"""The words of each verb, to be run in a folder that `prepare` made."""


def prepare(folder: Path) -> None:
    """Put images and recipes into a folder."""
    luck = np.random.default_rng(0)
    for name, images, side in (("images", 8, 32), ("many", 56, 4)):
        for animal in ("ant", "bee", "cat", "dog", "eel"):
            (folder / name / animal).mkdir(parents=True)
            colour = luck.integers(0, 60, 3)
            for number in range(images):
                pixels = (colour + luck.integers(0, 190, (side, side, 3))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / name / animal / f"{number}.png")
    (folder / "sweep.toml").write_text(SWEEP)
    (folder / "training.toml").write_text(TRAINING)
    (folder / "pretraining.toml").write_text(PRETRAINING)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    """From the signal, or from the start where none was sent."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment in which a command keeps to `folder`."""
    mine = {
        name: str(folder / name.lower()) for name in ("CL_CNAPS_CACHE", "CL_CNAPS_WEIGHTS", "CL_CNAPS_DATA")
    }
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **mine, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def forked(
    words: Sequence[str],
    folder: Path,
    *,
    after: float | None = None,
    number: int = signal.SIGKILL,
    largest: int | None = None,
    out: str = "stdout.txt",
    first: Callable[[], None] = lambda: None,
) -> Ended:
    """Run `cl-cnaps` with these words in a fork of this process, which has all modules loaded: in tenths of a second.

    A signal is sent to all its processes `after` some seconds. No file may have more than `largest` bytes, as on a disk
    that is full. Standard output goes to the file `out`, errors to stderr.txt. `first` is called before the command.
    """
    for name in ("stdout.txt", "stderr.txt"):
        (folder / name).write_text("")
    load()
    process = FORK.Process(target=_child, args=(list(words), folder, largest, out, first))
    start = time.monotonic()
    process.start()
    assert process.pid is not None
    process.join(after)
    if process.is_alive():
        start = time.monotonic()
        try:
            os.killpg(process.pid, number if after is not None else signal.SIGKILL)
        except ProcessLookupError:  # it does not lead a group yet
            process.kill()
        process.join(100)
    seconds = time.monotonic() - start
    assert process.exitcode is not None, "hangs"
    _wait_for_group(process.pid)
    printed, errors = ((folder / name).read_text(errors="replace") for name in ("stdout.txt", "stderr.txt"))
    return Ended(process.exitcode, printed, errors, seconds)


@functools.cache
def load() -> None:
    """Load what verbs load, once."""
    for name in MODULES:
        importlib.import_module(name)


def _child(words: list[str], folder: Path, largest: int | None, out: str, first: Callable[[], None]) -> None:
    os.setsid()
    for stop in (signal.SIGINT, signal.SIGTERM):  # which a shell lets its background jobs ignore
        signal.signal(stop, signal.default_int_handler if stop == signal.SIGINT else signal.SIG_DFL)
    os.chdir(folder)
    os.environ.update(environment(folder))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for handle, path in ((1, out), (2, "stderr.txt")):
        os.dup2(os.open(path, flags), handle)
    sys.stdout, sys.stderr = (open(handle, "w", buffering=1) for handle in (1, 2))  # noqa: PTH123, SIM115
    sys.argv = ["cl-cnaps", *words]
    if largest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    code: object = 0
    try:
        first()
        run_command()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 99
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python ends
    os._exit(code if isinstance(code, int) else 1)


def run(words: Sequence[str], folder: Path, after: float | None = None, number: int = signal.SIGINT) -> Ended:
    """Run `cl-cnaps` with these words; send a signal `after` some seconds to all its processes, as a terminal does."""
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "cli.py"), *words],
        cwd=folder, env=environment(folder), start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    start = time.monotonic()
    try:
        try:
            out, err = process.communicate(timeout=after)
        except subprocess.TimeoutExpired:
            start = time.monotonic()
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=100)
    finally:
        seconds = time.monotonic() - start
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    _wait_for_group(process.pid)
    return Ended(process.returncode, out, err, seconds)


def _wait_for_group(number: int) -> None:
    """Return when no process of the group is left; fail if some are there after seconds."""
    for _ in range(100):
        try:
            os.killpg(number, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(number, signal.SIGKILL)
    raise AssertionError("processes of the command are left")
