"""Every verb at its smallest, in a process of its own: what tests kill, interrupt and starve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

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
    "ablate": ["ablate", "queries", "--sources", "folder:images", "--tasks", "2", "--workers", "1", *MODEL],
    "sweep": ["sweep", "sweep.toml", "--workers", "2"],
    "metatrain": ["metatrain", "training.toml", "--workers", "1"],
    "pretrain": ["pretrain", "pretraining.toml", "--workers", "1"],
    "learn": ["learn", "images", "--backbone", "timm:test_resnet", "--backbone-weights", "random", "--out",
              "pets.safetensors"],
    "report": ["report", "records", "--out", "site"],
    "plot": ["plot", "records", "--out", "figures", "--format", "png"],
    "data convert": ["data", "convert", "folder:images", "--fractions", "0.5", "0.25", "0.25", "--out", "converted"],
    "data verify": ["data", "verify", "folder:images"],
}  # fmt: skip
"""The words of each verb, to be run in a folder that `prepare` made."""


def prepare(folder: Path) -> None:
    """Put images and recipes into a folder."""
    luck = np.random.default_rng(0)
    for name in ("ant", "bee", "cat", "dog", "eel"):
        (folder / "images" / name).mkdir(parents=True)
        colour = luck.integers(0, 60, 3)
        for number in range(8):
            pixels = (colour + luck.integers(0, 190, (32, 32, 3))).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
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
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return Ended(process.returncode, out, err, seconds)
        time.sleep(0.05)
    raise AssertionError(f"processes of `{' '.join(words)}` are left")
