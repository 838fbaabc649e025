"""Tasks by number, images loaded: what training and validation read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from cl_cnaps.data import Source, open_source, packed
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.episodes import Episode, EpisodeSampler, MixtureSampler
from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.training.augmentation import augmented
from cl_cnaps.training.class_pools import ClassPool, class_pool
from cl_cnaps.training.range_sampler import make_sampler
from cl_cnaps.training.recipe import Augmentation, Recipe


@dataclass(frozen=True)
class Task:
    """One task with its images, uint8."""

    index: int
    source: str
    batch: EpisodeBatch


class TaskData(Dataset[Task]):
    """Task number i is a function of the pools, the seed and i; readers in several processes see the same."""

    def __init__(
        self,
        pools: Mapping[str, ClassPool],
        sampler: EpisodeSampler,
        size: int,
        seed: int,
        augmentation: Augmentation | None = None,
    ) -> None:
        self.pools = dict(pools)
        self.sampler = sampler
        self.size = size
        self.seed = seed
        self.augmentation = augmentation

    def episode(self, index: int) -> Episode:
        """The description of a task."""
        return self.sampler.episode(index)

    def __getitem__(self, index: int) -> Task:
        episode = self.episode(index)
        batch = self.pools[episode.source].load(episode, self.size)
        if self.augmentation is not None:
            grey = self.pools[episode.source].source.grey
            batch = augmented(batch, self.augmentation, self.seed, index, grey=grey)
        return Task(index, episode.source, batch)


@dataclass(frozen=True)
class RecipeData:
    """All tasks of a recipe."""

    training: TaskData
    validation: Mapping[str, TaskData]
    """By source."""
    test: Mapping[str, TaskData]
    """By source; tasks that decide nothing."""
    sources: Mapping[str, Mapping[str, Any]]
    """What weight files say of each source: digest, origin, number of classes."""


def open_data(
    recipe: Recipe,
    image_size: int,
    *,
    specs: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    find: Callable[[str], CountedSource] = open_source,
) -> RecipeData:
    """Open every source of a recipe; `progress` is told a source's name, images packed since, and of how many."""
    trained: dict[str, ClassPool] = {}
    validated: dict[str, ClassPool] = {}
    tested: dict[str, ClassPool] = {}
    said: dict[str, dict[str, Any]] = {}
    for part in recipe.sources:
        source = find(part.name)
        reader = _packed(source, image_size, progress) if recipe.pack else source
        said[part.name] = {"digest": source.digest(), "origin": source.origin}
        for role, pools in (("train", trained), ("validate", validated), ("test", tested)):
            split = getattr(part, role)
            if split is not None:
                pool = class_pool(part, split, source, reader, specs=specs, seed=recipe.seed)
                pools[part.name] = pool
                said[part.name][role] = {
                    "split": split,
                    "classes": len(pool.split.classes),
                    "left_out": pool.left_out,
                }
    grouped = {part.name: part.grouped for part in recipe.sources}

    def samplers(pools: Mapping[str, ClassPool], seed: int) -> dict[str, EpisodeSampler]:
        return {
            name: make_sampler(name, pool.split, seed=seed, tasks=recipe.tasks, grouped=grouped[name])
            for name, pool in pools.items()
        }

    weights = {part.name: part.weight for part in recipe.sources if part.name in trained}
    mixture = MixtureSampler(samplers(trained, recipe.seed), weights, seed=recipe.seed)
    training = TaskData(trained, mixture, image_size, recipe.seed, recipe.augmentation)
    seed = recipe.validation.seed
    change = recipe.augmentation if recipe.validation.augmented else None
    validation, test = (
        {
            name: TaskData({name: pools[name]}, sampler, image_size, seed, augmentation)
            for name, sampler in samplers(pools, seed).items()
        }
        for pools, augmentation in ((validated, change), (tested, None))
    )
    return RecipeData(training, validation, test, said)


def _packed(source: CountedSource, size: int, progress: Callable[[str, int, int], None]) -> Source:
    images = total(source)
    return packed(source, size, progress=lambda count: progress(source.name, count, images))
