"""Named streams: which sources, which classes a task, which images support and which query."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from cl_cnaps.continual.planning import StreamConfig, default_shots, ordered, plan_tasks, task_sizes
from cl_cnaps.continual.plans import ImageView, Permuted, Pool, Rotated, StreamPlan, plain_view
from cl_cnaps.data import Source
from cl_cnaps.errors import BadInputError, MissingDataError
from cl_cnaps.names import BENCHMARKS as NAMES

__all__ = [
    "BENCHMARKS",
    "BenchmarkInfo",
    "StreamConfig",
    "StreamPlan",
    "open_sources",
    "plan_stream",
    "source_names",
]


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

DOMAINS: dict[str, tuple[tuple[str, ImageView], ...]] = {
    "permuted-mnist": tuple((f"permutation {seed}", Permuted(seed)) for seed in range(10)),
    "rotated-mnist": tuple((f"{angle} degrees", Rotated(angle)) for angle in range(0, 90, 15)),
}
"""Domain-incremental streams of MNIST: all ten classes in every task, shown in another way."""

MIXED: dict[str, tuple[str, ...]] = {
    "mixed-domains": ("mnist", "omniglot", "cifar10", "cu_birds", "quickdraw", "traffic_sign", "vgg_flower"),
    "mixed-offline": ("mnist", "glyphs"),
}
"""Streams whose every task is of another source; `mixed-offline` needs no data but the installation's."""

MIXED_CLASSES = 5
"""Classes a task of mixed domains unless a number is given."""

FSCIL = tuple(name for name in NAMES if name.startswith("fscil-"))
"""Few-shot class-incremental streams, which `fscil` plans."""

PUBLISHED_ORDER = 1993
"""Seed of the class order of nearly every published class-incremental table."""


def source_names(benchmark: str) -> tuple[str, ...]:
    """The sources that a benchmark reads; a name that is no benchmark is that of a source."""
    kind, colon, rest = benchmark.partition(":")
    if colon and kind in ("mixed", "domains"):
        names = tuple(name.strip() for name in rest.split(","))
        if len(names) < 2 or not all(names) or len(set(names)) < len(names):
            raise BadInputError(
                f"{benchmark!r} needs two different sources or more, with commas: {kind}:mnist,omniglot"
            )
        return names
    if benchmark in MIXED:
        return MIXED[benchmark]
    if benchmark in DOMAINS:
        return ("mnist",)
    if benchmark in FSCIL:
        from cl_cnaps.continual import fscil

        return (fscil.FSCIL[benchmark].source,)
    name = _short_cut(benchmark)[0]
    return (BENCHMARKS[name].source,) if name in BENCHMARKS else (name,)


def open_sources(benchmark: str, open_one: Callable[[str], Source]) -> list[Source]:
    """Open the sources of a benchmark; of `mixed-domains` those that are there."""
    found = []
    for name in source_names(benchmark):
        try:
            found.append(open_one(name))
        except MissingDataError:
            if benchmark != "mixed-domains":
                raise
    if benchmark == "mixed-domains" and len(found) < 2:
        wanted = ", ".join(MIXED[benchmark])
        raise MissingDataError(
            f"mixed-domains needs two of {wanted} or more; there are {len(found)}. mixed-offline needs no data"
        )
    return found


def plan_stream(config: StreamConfig, *sources: Source) -> StreamPlan:
    """Resolve a configuration against the sources of `source_names`, refusing what they cannot give."""
    for what, value in (("seed", config.seed), ("seed of the class order", config.shuffle_classes or 0)):
        if not 0 <= value < 2**32:  # a longer one would be cut into words that could be another draw's
            raise BadInputError(f"the {what} is {value}; it must be in 0..{2**32 - 1}")
    kind = config.benchmark.partition(":")[0]
    if config.benchmark in FSCIL:
        from cl_cnaps.continual.fscil import plan_fscil

        return plan_fscil(config, sources[0])
    if config.lists is not None:
        raise BadInputError(f"--lists is for {', '.join(FSCIL)}; {config.benchmark} has no published lists")
    if config.benchmark in DOMAINS or kind == "domains":
        return _domains(config, sources)
    if kind == "mixed" or config.benchmark in MIXED:
        return _mixed(config, sources)
    return _split(config, sources[0])


def _split(config: StreamConfig, source: Source) -> StreamPlan:
    """The classes of one source, a few a task."""
    name, base, step = _short_cut(config.benchmark)
    if step:
        if config.base_classes or config.classes_per_task is not None:
            raise BadInputError(f"{config.benchmark} names the sizes of its tasks: give no others")
        plain = config.class_order is None and config.shuffle_classes is None
        config = replace(
            config,
            base_classes=base,
            classes_per_task=step,
            class_order=PUBLISHED_ORDER if plain else config.class_order,
            shots="all" if config.shots is None else config.shots,
        )
    info = BENCHMARKS.get(name) or _for_any_source(source)
    groups = _groups(config, info, source)
    named = name in BENCHMARKS
    pools = {
        one: Pool(one, source, one, info.support_split, info.query_split)
        for _, group in groups
        for one in group
    }
    usual = info.shots if named else default_shots(info.shots, pools.values())
    every = len(source.classes(info.support_split))
    notes = () if len(pools) == every else (f"{len(pools)} of {every} classes are in a task",)
    return plan_tasks(
        config, [(title, [pools[one] for one in group], plain_view) for title, group in groups], usual, notes
    )


def _domains(config: StreamConfig, sources: Sequence[Source]) -> StreamPlan:
    """The same classes in every task, from another source or shown in another way."""
    for name in ("classes_per_task", "base_classes", "repeat"):
        if getattr(config, name) != getattr(StreamConfig, name):
            option = f"--{name.replace('_', '-')}"
            raise BadInputError(f"every task of {config.benchmark} has all classes: leave {option} out")
    infos = [
        BENCHMARKS["split-mnist"] if config.benchmark in DOMAINS else _for_any_source(s) for s in sources
    ]
    available = list(sources[0].classes(infos[0].support_split))
    for source, info in zip(sources, infos, strict=True):
        here = set(source.classes(info.support_split))
        available = [name for name in available if name in here]
    if not available:
        raise BadInputError(
            f"{', '.join(source.name for source in sources)} share no class, so they are no domains of one task; "
            "mixed:... takes sources of different classes"
        )
    classes = ordered(available, config.class_order, config.shuffle_classes, sources[0].name)
    if config.benchmark in DOMAINS:
        shown = [(title, sources[0], infos[0], view) for title, view in DOMAINS[config.benchmark]]
    else:
        shown = [(source.name, source, info, plain_view) for source, info in zip(sources, infos, strict=True)]
    tasks = [
        (title, [Pool(name, source, name, info.support_split, info.query_split) for name in classes], view)
        for title, source, info, view in shown
    ]
    return plan_tasks(config, tasks, default_shots(100, [pool for _, pools, _ in tasks for pool in pools]))


def _mixed(config: StreamConfig, sources: Sequence[Source]) -> StreamPlan:
    """Each task another source, of which some classes are drawn."""
    if config.class_order is not None or config.shuffle_classes is not None or config.base_classes:
        raise BadInputError(
            f"{config.benchmark} draws its classes by --seed: leave orders and --base-classes out"
        )
    count = config.classes_per_task or MIXED_CLASSES
    if not isinstance(count, int):
        raise BadInputError(f"{config.benchmark} takes one number of classes a task, not a list")
    tasks = []
    for number, source in enumerate(sources):
        info = _for_any_source(source)
        names = source.classes(info.support_split)
        if len(names) < count:
            raise BadInputError(f"{source.name} has {len(names)} classes; {count} a task are needed")
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([config.seed, number, 0x313])))
        chosen = [names[i] for i in sorted(rng.permutation(len(names))[:count])]
        pools = [
            Pool(f"{source.name}/{name}", source, name, info.support_split, info.query_split)
            for name in chosen
        ]
        tasks.append((source.name, pools, plain_view))
    return plan_tasks(config, tasks, default_shots(100, [pool for _, pools, _ in tasks for pool in pools]))


def _short_cut(benchmark: str) -> tuple[str, int, int]:
    """Benchmark or source, base classes and classes a task of a name such as `cifar100:B50-Inc10`; else two zeros."""
    match = re.fullmatch(r"(.+):B(\d+)-Inc([1-9]\d*)", benchmark)
    if match is None:
        return benchmark, 0, 0
    name = match[1] if match[1] in BENCHMARKS else f"split-{match[1]}"
    return name if name in BENCHMARKS else match[1], int(match[2]), int(match[3])


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


def _groups(config: StreamConfig, info: BenchmarkInfo, source: Source) -> list[tuple[str, tuple[str, ...]]]:
    available = source.classes(info.support_split)
    classes = ordered(available, config.class_order, config.shuffle_classes, source.name)
    per_task = config.classes_per_task if config.classes_per_task is not None else info.classes_per_task
    if per_task is None:
        if config.shuffle_classes is not None or config.class_order is not None or config.base_classes:
            raise BadInputError(
                f"{config.benchmark} groups classes by name; give --classes-per-task with another order"
            )
        groups = groupby(classes, key=lambda name: name.split("/")[0])
        return [(group, tuple(members)) for group, members in groups]
    sizes = task_sizes(len(classes), config.base_classes, per_task)
    ends = np.cumsum(sizes)
    parts = [tuple(classes[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
    return [(_task_name(part), part) for part in parts]


def _task_name(classes: Sequence[str]) -> str:
    return ", ".join(classes) if len(classes) <= 2 else f"{classes[0]} to {classes[-1]}"
