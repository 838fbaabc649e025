"""What the defaults rest on: choices compared on validation classes, which no table tests.

    CL_CNAPS_DATA=... python benchmarks/validation.py results/validation.csv --specs meta_dataset_specs

Classes and images are those of the validation splits of the training recipe of the shipped weights. Every setting of a
choice sees the same tasks; task i is a function of i alone. Rows are written as they are measured, and those that are
there already are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.continual.continual_cnaps import ContinualCnaps, ContinualConfig
from cl_cnaps.continual.evaluator import Evaluator, QuerySet
from cl_cnaps.episodes.episode_images import SPLIT
from cl_cnaps.features.kept import KeptBatches
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.loading import load_model
from cl_cnaps.torch_setup import set_up_torch
from cl_cnaps.training.class_pools import ClassPool
from cl_cnaps.training.recipe import read_recipe
from cl_cnaps.training.tasks import open_data
from cl_cnaps.training.validation import task_logits

RECIPE = Path(__file__).parent / "training" / "simple-efficientnet-lite0.toml"
COLUMNS = ("choice", "use", "source", "setting", "accuracy", "ci95", "tasks", "seconds")
SIDE = 96
"""Of the images as they are stored; the network sees them enlarged."""
SIZES = (64, 96, 128, 160, 224)
SIZE = 96
"""At which the other choices are compared: in a third of the time that the default takes."""
STREAMED = ("quickdraw", "mini-imagenet", "cu_birds", "vgg_flower")
SHOTS = (5, 20, 80)
CLASSES, QUERIES, DRAWS = 15, 10, 4


@dataclass
class Results:
    """The rows measured so far, in a file."""

    path: Path

    def __post_init__(self) -> None:
        self.rows: dict[tuple[str, ...], list[str]] = {}
        if self.path.exists():
            with self.path.open(encoding="utf-8", newline="") as file:
                self.rows = {tuple(row[:4]): row for row in list(csv.reader(file))[1:]}

    def missing(self, choice: str, use: str, source: str, settings: tuple[str, ...]) -> bool:
        """Return whether a setting of a choice has not been measured yet."""
        return any((choice, use, source, setting) not in self.rows for setting in settings)

    def add(
        self,
        choice: str,
        use: str,
        source: str,
        by_setting: Mapping[str, list[float]],
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        """Write the mean and interval of each setting's accuracies, and the seconds of a task if they matter."""
        for setting, values in by_setting.items():
            spread = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            row = [choice, use, source, setting, f"{np.mean(values):.4f}", f"{spread:.4f}", str(len(values))]
            row.append(f"{seconds[setting] / len(values):.3f}" if seconds else "")
            self.rows[(choice, use, source, setting)] = row
            print(*row, flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        with temporary.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *self.rows.values()])
        temporary.replace(self.path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--specs", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=30, help="few-shot tasks of each source")
    parser.add_argument("--simple", help="weights; the shipped ones by default")
    parser.add_argument("--transductive", help="weights; the shipped ones by default")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    set_up_torch()
    torch.set_num_threads(arguments.threads)
    results = Results(arguments.out)
    data = open_data(read_recipe(RECIPE), SIDE, specs=arguments.specs).validation
    pools = {name: tasks.pools[name] for name, tasks in data.items()}
    simple = load_model("simple", weights=arguments.simple, image_size=SIZE).model
    transductive = load_model("transductive", weights=arguments.transductive, image_size=SIZE).model
    plus = load_model("transductive", variant="plus", image_size=SIZE).model
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        for name, pool in pools.items():
            responsibilities(results, name, pool, transductive, arguments.tasks)
            responsibilities(results, name, pool, plus, arguments.tasks, "Transductive+, ")
        for name in STREAMED:
            covariances(results, name, pools[name], simple, Path(folder))
            refined_streams(results, name, pools[name], transductive, Path(folder))
        for name, tasks in data.items():
            image_sizes(results, name, tasks, simple, max(1, arguments.tasks // 3))


def image_sizes(results: Results, name: str, tasks: Any, model: CnapsModel, count: int) -> None:
    """Adapted and frozen features at every size, on tasks of up to 30 ways and 5 shots."""
    for size in SIZES:
        settings = (f"{size} adapted", f"{size} frozen")
        if not results.missing("image size", "few-shot", name, settings):
            continue
        found: dict[str, list[float]] = {setting: [] for setting in settings}
        seconds = dict.fromkeys(settings, 0.0)
        for i in range(count):
            batch = tasks[i].batch
            with model.at_image_size(size):
                for setting in settings:
                    start = time.perf_counter()
                    adapts = setting.endswith("adapted")
                    encoding = model.encode(batch.support_images, batch.support_labels) if adapts else None
                    right = task_logits(model, batch, encoding).argmax(dim=1) == batch.query_labels
                    found[setting].append(float(right.float().mean()))
                    seconds[setting] += time.perf_counter() - start
        results.add("image size", "few-shot", name, found, seconds)


def responsibilities(
    results: Results, name: str, pool: ClassPool, model: CnapsModel, count: int, whose: str = ""
) -> None:
    """No refinement, raw and calibrated responsibilities on the same features of 5-way tasks."""
    settings = ("none", "raw", "calibrated")
    for shots in (1, 5):
        use = f"{whose}5-way {shots}-shot"
        if not results.missing("responsibilities", use, name, settings):
            continue
        found: dict[str, list[float]] = {setting: [] for setting in settings}
        for i in range(count):
            drawn = draw(pool, 5, shots, QUERIES, np.random.default_rng([i, shots]))
            support, labels, queries, answers = (torch.cat(part) for part in zip(*drawn, strict=True))
            features = model.embed(
                torch.cat([support, queries]), model.adapt(model.encode(support, labels, queries))
            )
            head = model.fit(features[: len(support)], labels, 5)
            for setting in settings:
                with configured(model, refine=setting):
                    right = model.logits(head, features[len(support) :]).argmax(dim=1) == answers
                found[setting].append(float(right.float().mean()))
        results.add("responsibilities", use, name, found)


def covariances(results: Results, name: str, pool: ClassPool, model: CnapsModel, folder: Path) -> None:
    """The covariance of all classes seen against that of each task; single head, equal and one-by-one tasks."""
    for shots in SHOTS:
        for split in ("equal tasks", "one by one"):
            use = f"{shots} shots, {split}"
            if not results.missing("covariance", use, name, ("task", "seen")):
                continue
            found: dict[str, list[float]] = {"task": [], "seen": []}
            for tasks in streams(pool, shots, split):
                for setting, values in found.items():
                    values.append(streamed(model, tasks, setting, "single", "task", folder))
            if found["seen"]:
                results.add("covariance", use, name, found)


def refined_streams(results: Results, name: str, pool: ClassPool, model: CnapsModel, folder: Path) -> None:
    """No refinement, raw and calibrated responsibilities in each way that a stream can be scored, 20 shots."""
    settings = ("none", "raw", "calibrated")
    for head, scope in (("single", "task"), ("single", "stream"), ("multi", "task")):
        use = "stream, multi head" if head == "multi" else f"stream, single head, query scope {scope}"
        if not results.missing("responsibilities", use, name, settings):
            continue
        found: dict[str, list[float]] = {setting: [] for setting in settings}
        for tasks in streams(pool, 20, "equal tasks"):
            for setting, values in found.items():
                with configured(model, refine=setting):
                    values.append(streamed(model, tasks, "seen", head, scope, folder))
        results.add("responsibilities", use, name, found)


Task = tuple[Tensor, Tensor, Tensor, Tensor]
"""Support images and labels, query images and labels."""


def draw(pool: ClassPool, ways: int, shots: int, queries: int, rng: np.random.Generator) -> list[Task]:
    """Draw classes and disjoint support and query images of each: a task for every class."""
    sizes = dict(zip(pool.split.classes.names, pool.split.classes.sizes, strict=True))
    enough = [name for name, size in sizes.items() if size >= shots + queries]
    drawn = []
    for label, name in enumerate(rng.choice(enough, min(ways, len(enough)), replace=False)):
        images = rng.choice(sizes[str(name)], shots + queries, replace=False).tolist()
        pictures = pool.view.images(SPLIT, str(name), images, SIDE)
        labels = torch.full((shots + queries,), label)
        drawn.append((pictures[:shots], labels[:shots], pictures[shots:], labels[shots:]))
    return drawn


def streams(pool: ClassPool, shots: int, split: str) -> Iterator[list[Task]]:
    """Streams of new draws: tasks of five classes, or all but five in the first and then one at a time."""
    sizes = pool.split.classes.sizes
    ways = min(CLASSES, sum(size >= shots + QUERIES for size in sizes))
    if ways < 10:
        return
    for number in range(DRAWS):
        drawn = draw(pool, ways, shots, QUERIES, np.random.default_rng([number, shots, 1]))
        cuts = range(0, ways, 5) if split == "equal tasks" else (0, *range(ways - 5, ways))
        parts = [drawn[start:stop] for start, stop in zip(cuts, (*cuts[1:], ways), strict=True)]
        yield [
            tuple(torch.cat(column) for column in zip(*part, strict=True))  # type: ignore[misc]
            for part in parts
        ]


def streamed(
    model: CnapsModel, tasks: list[Task], covariance: Any, head: Any, scope: Any, folder: Path
) -> float:
    """Mean accuracy over tasks after the last one."""
    cnaps = ContinualCnaps(model, ContinualConfig(covariance=covariance))
    cnaps.kept = KeptBatches.under(folder, model)
    evaluator, sets = Evaluator(cnaps, scope), []
    for number, (images, labels, queries, _) in enumerate(tasks):
        cnaps.learn(images, labels, number, queries)
        sets.append(QuerySet.of(queries, [number]))
    scores = []
    for queries, (*_, answers) in zip(sets, tasks, strict=True):
        classes = torch.tensor([key.label for key in evaluator.competing(queries, head)])
        right = classes[evaluator.logits(queries, head, sets).argmax(dim=1)] == answers
        scores.append(float(right.float().mean()))
    return float(np.mean(scores))


class configured:
    """A transductive model with another kind of responsibilities, or without refinement, for a while."""

    def __init__(self, model: CnapsModel, refine: str) -> None:
        self.model, self.usual = model, model.config
        steps = {"refine_min": 0, "refine_max": 0} if refine == "none" else {}
        kind: Any = "raw" if refine == "none" else refine
        self.config = replace(self.usual, responsibilities=kind, **steps)

    def __enter__(self) -> None:
        self.model.config = self.config

    def __exit__(self, *_: object) -> None:
        self.model.config = self.usual


if __name__ == "__main__":
    main()
