"""Tasks by number, images loaded and augmented: what training and validation read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from cl_cnaps.data import Source, open_source, packed
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.episodes import (
    Episode,
    EpisodeSampler,
    FixedConfig,
    FixedSampler,
    MetaDatasetSampler,
    MixtureSampler,
)
from cl_cnaps.episodes.episode import EpisodeBatch, Purpose, episode_generator
from cl_cnaps.episodes.spec import ClassTable, SplitSpec
from cl_cnaps.errors import BadInputError
from cl_cnaps.training.class_pools import ClassPool, class_pool
from cl_cnaps.training.looks import brightness, draw_look, looked_at
from cl_cnaps.training.recipe import Augmentation, RangeTasks, Recipe, TaskShape


class RangeSampler:
    """Episode i has as many ways and shots as (seed, i) decides; all its classes have the same shot.

    With groups the classes come from one group, drawn uniformly; ways are then at most its number of classes.
    """

    def __init__(
        self, source: str, split: SplitSpec, *, seed: int, tasks: RangeTasks, grouped: bool = False
    ) -> None:
        self.source = source
        self.seed = seed
        self.tasks = tasks
        self._tables = _tables(source, split, grouped)
        self._samplers: dict[tuple[int, int, int], FixedSampler] = {}
        for group in range(len(self._tables)):
            try:  # so that too few images are an error now, not at some episode
                self._sampler(group, tasks.ways[0], tasks.shots[1])
            except BadInputError as error:
                raise BadInputError(
                    f"{error} (a recipe leaves small classes out with `min_images` of the source)"
                ) from None

    def episode(self, index: int) -> Episode:
        """Episode number `index`, from 0."""
        rng = episode_generator(self.seed, index, Purpose.SHAPE)
        group = int(rng.integers(len(self._tables)))
        most = min(self.tasks.ways[1], len(self._tables[group]))
        ways = int(rng.integers(self.tasks.ways[0], most, endpoint=True))
        shots = int(rng.integers(*self.tasks.shots, endpoint=True))
        return self._sampler(group, ways, shots).episode(index)

    def _sampler(self, group: int, ways: int, shots: int) -> FixedSampler:
        key = (group, ways, shots)
        if key not in self._samplers:
            config = FixedConfig(ways, shots, self.tasks.queries)
            self._samplers[key] = FixedSampler(
                self.source, self._tables[group], seed=self.seed, config=config
            )
        return self._samplers[key]


def make_sampler(
    source: str, split: SplitSpec, *, seed: int, tasks: TaskShape, grouped: bool
) -> EpisodeSampler:
    """The sampler of a recipe's tasks over the classes of one pool."""
    if isinstance(tasks, RangeTasks):
        return RangeSampler(source, split, seed=seed, tasks=tasks, grouped=grouped)
    return MetaDatasetSampler(source, split, seed=seed, config=tasks)


def _tables(source: str, split: SplitSpec, grouped: bool) -> list[ClassTable]:
    if not grouped:
        return [split.classes]
    if split.groups is None:
        raise BadInputError(f"{source}: the recipe has `grouped`, but the classes are in no groups")
    sizes = dict(zip(split.classes.names, split.classes.sizes, strict=True))
    return [ClassTable.of({name: sizes[name] for name in names}) for names in split.groups.values()]


def augmented(
    batch: EpisodeBatch, augmentation: Augmentation, seed: int, index: int, *, grey: bool = False
) -> EpisodeBatch:
    """Return the task as training sees it, a function of the task and of (seed, index).

    `grey`: whether its source has grey images, which may also be inverted and turned.
    """
    rng = episode_generator(seed, index, Purpose.AUGMENTATION)
    # All are drawn whatever the shares are, so that setting one leaves the others' draws as they were.
    low, inverted, colourless, turned = rng.random(4)
    turns = int(rng.integers(1, 4))
    look = draw_look(rng, drawings=grey) if rng.random() < augmentation.look_share else None
    crops = None
    if not grey and rng.random() < augmentation.crop_share:
        crops = torch.Generator().manual_seed(int(rng.integers(2**31)))

    def change(images: Tensor) -> Tensor:
        if crops is not None:
            images = _cropped(images, crops)
        if look is not None:
            images = looked_at(images, look)
        if low < augmentation.low_resolution_share:
            images = _resized(images, augmentation.low_resolution)
        if grey and inverted < augmentation.invert_share:
            images = 255 - images
        if colourless < augmentation.grey_share:
            images = looked_at(images, lambda colours: brightness(colours).expand(-1, 3, -1, -1))
        if grey and turned < augmentation.rotate_share:
            images = torch.rot90(images, turns, (2, 3)).contiguous()
        return images

    return replace(
        batch, support_images=change(batch.support_images), query_images=change(batch.query_images)
    )


_LEAST_SIDE = 0.6
"""Of a crop, to the image's."""


def _cropped(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a square part of each uint8 image, of another size and place and mirrored or not, at the same side."""
    count = len(images)
    sides_N = 1 - (1 - _LEAST_SIDE) * torch.rand(count, generator=generator)
    theta_N23 = torch.zeros(count, 2, 3)
    theta_N23[:, 0, 0] = sides_N * (2 * torch.randint(2, (count,), generator=generator) - 1)
    theta_N23[:, 1, 1] = sides_N
    theta_N23[:, :, 2] = (1 - sides_N)[:, None] * (2 * torch.rand(count, 2, generator=generator) - 1)
    grid = nn.functional.affine_grid(theta_N23, list(images.shape), align_corners=False)
    parts = nn.functional.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return parts.round_().clamp_(0, 255).to(torch.uint8)


def _resized(images: Tensor, size: int) -> Tensor:
    """Return uint8 images at another size; the model enlarges what it is given to its own input size."""
    if images.shape[-1] == size:
        return images
    small = nn.functional.interpolate(
        images.float(), (size, size), mode="bilinear", antialias=True, align_corners=False
    )
    return small.round_().clamp_(0, 255).to(torch.uint8)


def mixed(first: EpisodeBatch, second: EpisodeBatch) -> EpisodeBatch:
    """Return a task with the first half of the classes of one task, and as many of another or as many as it has.

    Where augmentation made the images of one smaller, they are enlarged to those of the other.
    """
    kept = (first.way + 1) // 2
    side = max(batch.support_images.shape[-1] for batch in (first, second))
    added = min(first.way - kept, second.way)
    parts: dict[str, Tensor] = {}
    for role in ("support", "query"):
        images, labels = [], []
        for batch, ways, offset in ((first, kept, 0), (second, added, kept)):
            own = getattr(batch, f"{role}_labels")
            images.append(_resized(getattr(batch, f"{role}_images")[own < ways], side))
            labels.append(own[own < ways] + offset)
        parts[f"{role}_images"], parts[f"{role}_labels"] = torch.cat(images), torch.cat(labels)
    return EpisodeBatch(kept + added, **parts)


@dataclass(frozen=True)
class Task:
    """One task with its images, uint8."""

    index: int
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

    def images(self, index: int) -> int:
        """Return how many images a task has; of a mixed one, its first source's task."""
        episode = self.episode(index)
        return len(episode.support) + len(episode.query)

    def __getitem__(self, index: int) -> Task:
        episode = self.episode(index)
        batch, other = self._batch(episode), self._companion(index)
        if other is not None:
            batch = mixed(batch, self._batch(other))
        return Task(index, batch)

    def _batch(self, episode: Episode) -> EpisodeBatch:
        pool = self.pools[episode.source]
        batch = pool.load(episode, self.size)
        if self.augmentation is None:
            return batch
        return augmented(batch, self.augmentation, self.seed, episode.index, grey=pool.source.grey)

    def _companion(self, index: int) -> Episode | None:
        if self.augmentation is None or not isinstance(self.sampler, MixtureSampler):
            return None
        return self.sampler.companion(index, self.augmentation.mixed_share)


@dataclass(frozen=True)
class RecipeData:
    """All tasks of a recipe."""

    training: TaskData
    validation: Mapping[str, TaskData]
    """By source."""
    test: Mapping[str, TaskData]
    """By source; tasks that decide nothing."""
    sources: Mapping[str, Mapping[str, Any]]
    """What weight files have of each source: digest, origin, number of classes."""


def open_data(
    recipe: Recipe,
    image_size: int,
    *,
    specs: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda *_: None,
    find: Callable[[str], CountedSource] = open_source,
) -> RecipeData:
    """Open every source of a recipe; `progress` gets a source's name, images packed since, and of how many."""
    trained: dict[str, ClassPool] = {}
    validated: dict[str, ClassPool] = {}
    tested: dict[str, ClassPool] = {}
    facts: dict[str, dict[str, Any]] = {}
    for part in recipe.sources:
        source = find(part.name)
        reader = _packed(source, image_size, progress) if recipe.pack else source
        facts[part.name] = {"digest": source.digest(), "origin": source.origin}
        for role, pools in (("train", trained), ("validate", validated), ("test", tested)):
            split = getattr(part, role)
            if split is not None:
                pool = class_pool(part, split, source, reader, specs=specs, seed=recipe.seed)
                pools[part.name] = pool
                facts[part.name][role] = {
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
    return RecipeData(training, validation, test, facts)


def _packed(source: CountedSource, size: int, progress: Callable[[str, int, int], None]) -> Source:
    images = total(source)
    return packed(source, size, progress=lambda count: progress(source.name, count, images))
