"""Named streams: which source, which classes a task, which images support and which query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch

from cl_cnaps.continual.stream import Stream, Task
from cl_cnaps.data import Source
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class BenchmarkInfo:
    """How a named benchmark makes a stream of a source."""

    source: str
    classes_per_task: int | None
    """None: classes are grouped by the first part of their name, as Omniglot's by alphabet."""
    shots: int
    support_split: str
    query_split: str
    """The same as `support_split` where a class has one pool of images, from which both are drawn, disjoint."""


BENCHMARKS: dict[str, BenchmarkInfo] = {
    "split-mnist": BenchmarkInfo("mnist", 2, 100, "train", "test"),
    "split-cifar10": BenchmarkInfo("cifar10", 2, 100, "train", "test"),
    "split-cifar100": BenchmarkInfo("cifar100", 10, 100, "train", "test"),
    "split-fashion-mnist": BenchmarkInfo("fashion-mnist", 2, 100, "train", "test"),
    "split-omniglot": BenchmarkInfo("omniglot", None, 10, "evaluation", "evaluation"),
    "split-mini-imagenet": BenchmarkInfo("mini-imagenet", 5, 50, "test", "test"),
}

MOST_QUERIES = 100
"""Query images per class when no number is asked for: this many, or as many as every class has."""


@dataclass(frozen=True)
class StreamConfig:
    """Which images of a source make the stream, run by run."""

    benchmark: str
    shots: int | None = None
    queries: int | None = None
    classes_per_task: int | None = None
    class_order: tuple[str, ...] | None = None
    shuffle_classes: int | None = None
    """Seed of a random class order, apart from the seed of the images."""
    seed: int = 0


@dataclass(frozen=True)
class StreamPlan:
    """A resolved stream: everything but the draw of images, which each run makes anew."""

    name: str
    source: Source
    support_split: str
    query_split: str
    tasks: tuple[tuple[str, tuple[str, ...]], ...]
    """Task name and its classes."""
    shots: int
    queries: int
    seed: int

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes in the order in which they are learned; the position is the class id."""
        return tuple(dict.fromkeys(name for _, classes in self.tasks for name in classes))

    def embeddings(self, *, queries_once: bool) -> int:
        """How many images one run embeds: queries once, or once more for every later task."""
        sizes = [len(classes) for _, classes in self.tasks]
        times = [1 if queries_once else len(sizes) - step for step in range(len(sizes))]
        return sum(n * (self.shots + again * self.queries) for n, again in zip(sizes, times, strict=True))

    def stream(self, run: int, image_size: int) -> Stream:
        """The stream of one run: new support and query images, the same classes and order."""
        names = self.class_names
        number = {name: i for i, name in enumerate(names)}
        tasks = []
        for position, (task_name, classes) in enumerate(self.tasks):
            support, query = [], []
            for name in classes:
                chosen_support, chosen_query = self._draw(name, run, position)
                support.append(self.source.images(self.support_split, name, chosen_support, image_size))
                query.append(self.source.images(self.query_split, name, chosen_query, image_size))
            ids = torch.tensor([number[name] for name in classes])
            tasks.append(
                Task(
                    task_name,
                    tuple(ids.tolist()),
                    torch.cat(support),
                    ids.repeat_interleave(self.shots),
                    torch.cat(query),
                    ids.repeat_interleave(self.queries),
                )
            )
        return Stream(self.name, names, tuple(tasks), self.source.origin)

    def _draw(self, class_name: str, run: int, position: int) -> tuple[list[int], list[int]]:
        """Image numbers for support and query: a function of seed, run, task and class, and of nothing else."""
        entropy = [self.seed, run, position, *class_name.encode()]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        if self.support_split == self.query_split:
            pool = rng.permutation(self.source.count(self.support_split, class_name))
            return pool[: self.shots].tolist(), pool[self.shots : self.shots + self.queries].tolist()
        support = rng.permutation(self.source.count(self.support_split, class_name))[: self.shots]
        query = rng.permutation(self.source.count(self.query_split, class_name))[: self.queries]
        return support.tolist(), query.tolist()


def source_name(benchmark: str) -> str:
    """The source that a benchmark reads: a named one's, or the benchmark itself where it names a source."""
    return BENCHMARKS[benchmark].source if benchmark in BENCHMARKS else benchmark


def plan_stream(config: StreamConfig, source: Source) -> StreamPlan:
    """Resolve a configuration against a source, refusing what the source cannot give."""
    for what, value in (("seed", config.seed), ("seed of the class order", config.shuffle_classes or 0)):
        if not 0 <= value < 2**32:  # a longer one would be cut into words that could be another draw's
            raise BadInputError(f"the {what} is {value}; it must be in 0..{2**32 - 1}")
    info = BENCHMARKS.get(config.benchmark) or _for_any_source(source)
    tasks = _tasks(config, info, source)
    counts = {
        name: (source.count(info.support_split, name), source.count(info.query_split, name))
        for _, classes in tasks
        for name in classes
    }
    shots = config.shots if config.shots is not None else _default_shots(config, info, counts)
    fewest = min(
        test - (shots if info.support_split == info.query_split else 0) for _, test in counts.values()
    )
    queries = config.queries if config.queries is not None else min(MOST_QUERIES, max(fewest, 1))
    _check_enough(config.benchmark, source, info, counts, shots, queries)
    return StreamPlan(
        config.benchmark, source, info.support_split, info.query_split, tasks, shots, queries, config.seed
    )


def _for_any_source(source: Source) -> BenchmarkInfo:
    """A person's own images: train and test folders if there are both, else one pool per class.

    Splits of different classes, as in few-shot data sets, are pools; the test classes are taken.
    """
    splits = set(source.splits)
    train, test = (set(source.classes(split)) if split in splits else set() for split in ("train", "test"))
    if train and train == test:
        return BenchmarkInfo(source.name, 2, 100, "train", "test")
    if train & test:
        raise BadInputError(
            f"class {min(train ^ test)!r} of {source.name} is in only one of the splits train and test; put images of "
            "every class into both, or all images into one"
        )
    pool = "test" if test else source.splits[-1]
    return BenchmarkInfo(source.name, 2, 100, pool, pool)


def _default_shots(config: StreamConfig, info: BenchmarkInfo, counts: dict[str, tuple[int, int]]) -> int:
    """The benchmark's own number; for a person's images half of the smallest class, 100 at the most."""
    if config.benchmark in BENCHMARKS:
        return info.shots
    same = info.support_split == info.query_split
    fewest = min(train for train, _ in counts.values())
    return max(1, min(info.shots, fewest // 2 if same else fewest))


def _tasks(
    config: StreamConfig, info: BenchmarkInfo, source: Source
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    available = source.classes(info.support_split)
    classes = list(available)
    if config.class_order is not None:
        unknown = [name for name in config.class_order if name not in available]
        if unknown:
            raise BadInputError(
                f"{source.name} has no class {unknown[0]!r}; its {len(available)} classes begin with "
                f"{', '.join(available[:5])}"
            )
        if len(set(config.class_order)) != len(config.class_order):
            raise BadInputError("the class order names a class twice")
        classes = list(config.class_order)
    if config.shuffle_classes is not None:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([config.shuffle_classes, 0x5C])))
        classes = [classes[i] for i in rng.permutation(len(classes))]
    if len(classes) == 0:
        raise BadInputError(f"{source.name} has no classes")
    per_task = config.classes_per_task if config.classes_per_task is not None else info.classes_per_task
    if per_task is None:
        if config.shuffle_classes is not None or config.class_order is not None:
            raise BadInputError(
                f"{config.benchmark} groups classes by name; give --classes-per-task with another order"
            )
        return tuple(
            (group, tuple(members))
            for group, members in groupby(classes, key=lambda name: name.split("/")[0])
        )
    if per_task < 1:
        raise BadInputError(f"a task needs at least 1 class, {per_task} were asked for")
    if len(classes) % per_task:
        raise BadInputError(
            f"{len(classes)} classes cannot be split into tasks of {per_task}: choose --classes-per-task among "
            f"{', '.join(str(n) for n in range(1, len(classes) + 1) if len(classes) % n == 0)}"
        )
    parts = [tuple(classes[i : i + per_task]) for i in range(0, len(classes), per_task)]
    return tuple((_task_name(part), part) for part in parts)


def _task_name(classes: Sequence[str]) -> str:
    return ", ".join(classes) if len(classes) <= 2 else f"{classes[0]} to {classes[-1]}"


def _check_enough(
    benchmark: str,
    source: Source,
    info: BenchmarkInfo,
    counts: dict[str, tuple[int, int]],
    shots: int,
    queries: int,
) -> None:
    """Refuse to do less than was asked for."""
    if shots < 1 or queries < 1:
        raise BadInputError(f"shots and queries must be at least 1, got {shots} and {queries}")
    same = info.support_split == info.query_split
    for name, (train, test) in counts.items():
        if same and train < shots + queries:
            raise BadInputError(
                f"class {name!r} of {source.name} has {train} images; {shots} shots and {queries} queries need "
                f"{shots + queries}. Ask for fewer with --shots and --queries"
            )
        if train < shots:
            raise BadInputError(
                f"class {name!r} of {source.name} has {train} images in split {info.support_split!r}, "
                f"{shots} shots were asked for ({benchmark}). Ask for fewer with --shots"
            )
        if test < queries:
            raise BadInputError(
                f"class {name!r} of {source.name} has {test} images in split {info.query_split!r}, "
                f"{queries} queries were asked for ({benchmark}). Ask for fewer with --queries"
            )
