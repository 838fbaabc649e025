"""Choosing a setting without a test image: on support images held out from the first tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from cl_cnaps.continual.baselines.registry import Inputs, make_baseline
from cl_cnaps.continual.stream import Stream, Task, accuracy
from cl_cnaps.errors import BadInputError

if TYPE_CHECKING:
    from cl_cnaps.continual.baselines.inputs import FeatureFunction


@dataclass(frozen=True)
class Tuned:
    """What was tried and what did best."""

    setting: str
    best: Any
    scores: Mapping[Any, float]
    """Per candidate the final accuracy on held-out images, averaged over tasks and both heads."""


def held_out_stream(stream: Stream, *, tasks: int, fraction: float, seed: int) -> Stream:
    """The first tasks of a stream with part of each class's support images as queries.

    The stream's own queries are not in it, nor any image of a later task.

    Args:
        stream: Where the support images come from.
        tasks: How many of the first tasks to keep (all, if there are fewer).
        fraction: Part of each class's support images to hold out: at least one, and never all.
        seed: Which images.
    """
    if not 0 < fraction < 1 or tasks < 1:
        raise BadInputError(
            f"held_out_stream needs tasks >= 1 and 0 < fraction < 1, not {tasks} and {fraction}"
        )
    generator = torch.Generator().manual_seed(seed)
    kept = tuple(_split(task, fraction, generator) for task in stream.tasks[:tasks])
    return replace(stream, name=f"{stream.name} (held out)", tasks=kept)


def tune(
    name: str,
    stream: Stream,
    setting: str,
    candidates: Sequence[Any],
    *,
    on: Inputs,
    features: FeatureFunction | None,
    seed: int,
    device: torch.device,
    tasks: int = 3,
    fraction: float = 0.2,
    **settings: Any,
) -> Tuned:
    """Try each value of one setting of a baseline on held-out support images; ties go to the earlier candidate.

    Args:
        name: A key of `BASELINES`.
        stream: Only the support images of its first `tasks` tasks are used.
        setting: The field of the baseline's settings to vary, such as ``strength``.
        candidates: Its values.
        on: As in `make_baseline`.
        features: As in `make_baseline`.
        seed: Of the split and of each run.
        device: As in `make_baseline`.
        tasks: How many first tasks to learn.
        fraction: Part of the support images held out.
        **settings: Other fields to change, the same for all candidates.
    """
    if not candidates:
        raise BadInputError(f"no candidates for setting {setting!r} of baseline {name!r}")
    small = held_out_stream(stream, tasks=tasks, fraction=fraction, seed=seed)
    scores: dict[Any, float] = {}
    for value in candidates:
        changed = {**settings, setting: value}
        learner = make_baseline(name, small, on=on, features=features, seed=seed, device=device, **changed)
        for step in range(len(small.tasks)):
            learner.learn(step)
        found = [
            accuracy(learner.predict(number, head), task.query_labels)
            for number, task in enumerate(small.tasks)
            for head in ("single", "multi")
        ]
        scores[value] = sum(found) / len(found)
    return Tuned(setting, max(scores, key=lambda value: scores[value]), scores)


def _split(task: Task, fraction: float, generator: torch.Generator) -> Task:
    learned, held_out = [], []
    for label in sorted(set(task.classes)):
        rows = (task.support_labels == label).nonzero()[:, 0]
        count = max(1, round(fraction * len(rows)))
        if count >= len(rows):
            have = f"class {label} of task {task.name!r} has {len(rows)} support image(s)"
            raise BadInputError(f"{have}: too few to hold out {fraction:g} of them and learn from the rest")
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        held_out.append(shuffled[:count])
        learned.append(shuffled[count:])
    # In the order of the stream, so that a split changes nothing but which images there are.
    support, query = torch.cat(learned).sort().values, torch.cat(held_out).sort().values
    return Task(
        name=task.name,
        classes=task.classes,
        support_images=task.support_images[support],
        support_labels=task.support_labels[support],
        query_images=task.support_images[query],
        query_labels=task.support_labels[query],
    )
