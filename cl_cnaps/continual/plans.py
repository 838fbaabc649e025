"""A resolved stream: which images of which source each task has, everything but the draw that each run makes anew."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.stream import Stream, Task
from cl_cnaps.data import Source

ImageView = Callable[[Source, str, str, list[int], int], Tensor]
"""Source, split, class, image numbers and size to uint8 images N x 3 x size x size."""


def plain_view(source: Source, split: str, class_name: str, indices: list[int], size: int) -> Tensor:
    """The images as they are."""
    return source.images(split, class_name, indices, size)


@dataclass(frozen=True)
class Pool:
    """The images that a class of a stream can be drawn from."""

    name: str
    """In the stream: equal names in two tasks are the same class."""
    source: Source
    class_name: str
    """In the source."""
    support_split: str
    query_split: str
    """The same as `support_split` where a class has one pool of images, from which both are drawn, disjoint."""
    listed: tuple[int, ...] = ()
    """Support images that a published list fixes for every run."""

    @property
    def one(self) -> bool:
        """Whether support and query images come from the same images."""
        return self.support_split == self.query_split

    @property
    def support(self) -> int:
        """Images in the split of the support."""
        return self.source.count(self.support_split, self.class_name)

    @property
    def query(self) -> int:
        """Images in the split of the queries."""
        return self.source.count(self.query_split, self.class_name)


@dataclass(frozen=True, kw_only=True)
class PlannedClass(Pool):
    """One class of one task."""

    shots: int
    queries: int
    turn: int = 0
    """How many earlier tasks drew new images of this class from the same pool."""
    drawn_at: int = 0
    """The task that the draw is a function of: that of its first turn."""

    def draw(self, seed: int, run: int) -> tuple[list[int], list[int]]:
        """Return image numbers for support and query: a function of seed, run, task and class, and of nothing else."""
        entropy = [seed, run, self.drawn_at, *self.class_name.encode()]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
        pool = rng.permutation(self.support)
        # Turn 0 takes the first images, then come the queries of a common pool, then the other turns.
        start = self.turn * self.shots + (self.queries if self.one and self.turn else 0)
        support = np.array(self.listed) if self.listed else pool[start : start + self.shots]
        if not self.one:
            query = rng.permutation(self.query)[: self.queries]
        elif self.listed:
            query = pool[~np.isin(pool, support)][: self.queries]
        else:
            query = pool[self.shots : self.shots + self.queries]
        return support.tolist(), query.tolist()


@dataclass(frozen=True)
class PlannedTask:
    """One task: its classes, and how their images are shown."""

    name: str
    classes: tuple[PlannedClass, ...]
    view: ImageView = plain_view

    @property
    def class_names(self) -> tuple[str, ...]:
        """Its classes in order."""
        return tuple(one.name for one in self.classes)


@dataclass(frozen=True)
class StreamPlan:
    """Tasks in the order in which they are learned."""

    name: str
    tasks: tuple[PlannedTask, ...]
    seed: int
    notes: tuple[str, ...] = field(default=())
    """What a reader of the numbers should know, such as a draw that stands in for a published list."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes in the order in which they are learned; the position is the class id."""
        return tuple(dict.fromkeys(one.name for task in self.tasks for one in task.classes))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source once, in order."""
        found = {id(one.source): one.source for task in self.tasks for one in task.classes}
        return tuple(found.values())

    @property
    def origin(self) -> str:
        """Where the images come from."""
        return "; ".join(source.origin for source in self.sources)

    @property
    def described_origin(self) -> str:
        """The origin with the notes."""
        return "; ".join((self.origin, *self.notes))

    @property
    def listed(self) -> dict[str, list[int]]:
        """Support images that published lists fix, by class."""
        return {one.name: list(one.listed) for task in self.tasks for one in task.classes if one.listed}

    @property
    def details(self) -> dict[str, object]:
        """What decides the images beside classes, shots, queries and seed: nothing for a stream with equal shots."""
        by_task = [[one.shots for one in task.classes] for task in self.tasks]
        unequal = {} if isinstance(self.shots, int) else {"shots_by_task": by_task}
        return {**unequal, **({"listed": self.listed} if self.listed else {})}

    def digest(self) -> str:
        """Digest of the content of all sources."""
        digests = [source.digest() for source in self.sources]
        return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

    @property
    def shots(self) -> int | str:
        """Support images a class: one number; `60, then 5` where those of the base task differ; else `from-to`."""
        every = [one.shots for task in self.tasks for one in task.classes]
        base = len(self.tasks[0].classes)
        if len(set(every[base:])) == 1 and set(every[:base]) != set(every[base:]):
            return f"{_span(every[:base])}, then {every[-1]}"
        return _span(every)

    @property
    def queries(self) -> int | str:
        """Query images a class, alike."""
        return _span([one.queries for task in self.tasks for one in task.classes])

    @property
    def protocol(self) -> str | None:
        """How class-incremental papers write the sizes of the tasks, such as B50-Inc10; None if they have no name."""
        sizes = [len(task.classes) for task in self.tasks]
        again = len(self.class_names) < sum(sizes)
        if len(sizes) < 2 or again:
            return None
        step = sizes[1]
        if any(size != step for size in sizes[1:-1]) or sizes[-1] > step:
            return None
        return f"B{0 if sizes[0] == step else sizes[0]}-Inc{step}"

    def stream(self, run: int, image_size: int) -> Stream:
        """The stream of one run: new support and query images, the same classes and order."""
        number = {name: i for i, name in enumerate(self.class_names)}
        tasks = []
        for task in self.tasks:
            support, query = [], []
            for one in task.classes:
                chosen, queries = one.draw(self.seed, run)
                support.append(task.view(one.source, one.support_split, one.class_name, chosen, image_size))
                query.append(task.view(one.source, one.query_split, one.class_name, queries, image_size))
            ids = torch.tensor([number[one.name] for one in task.classes])
            tasks.append(
                Task(
                    task.name,
                    tuple(ids.tolist()),
                    torch.cat(support),
                    ids.repeat_interleave(torch.tensor([len(images) for images in support])),
                    torch.cat(query),
                    ids.repeat_interleave(torch.tensor([len(images) for images in query])),
                )
            )
        return Stream(self.name, tuple(tasks))


def _span(values: list[int]) -> int | str:
    low, high = min(values), max(values)
    return low if low == high else f"{low}-{high}"


PERMUTED_PIXELS = 28
"""Side at which pixels change places: MNIST's own."""


@dataclass(frozen=True)
class Permuted:
    """Pixels in a random order, the same for all images; seed 0 leaves them as they are."""

    seed: int

    def __call__(self, source: Source, split: str, class_name: str, indices: list[int], size: int) -> Tensor:
        """Permute at 28 x 28 pixels, then enlarge."""
        images = source.images(split, class_name, indices, PERMUTED_PIXELS)
        if self.seed:
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.randperm(PERMUTED_PIXELS**2, generator=generator)
            images = images.flatten(2)[:, :, order].view_as(images)
        return resized(images, size)


@dataclass(frozen=True)
class Rotated:
    """Images turned by an angle in degrees, against the clock; corners that were outside are black."""

    degrees: float

    def __call__(self, source: Source, split: str, class_name: str, indices: list[int], size: int) -> Tensor:
        """Turn at the size given."""
        images = source.images(split, class_name, indices, size)
        if self.degrees == 0 or len(images) == 0:
            return images
        turn = torch.deg2rad(torch.tensor(float(self.degrees)))
        cos, sin = torch.cos(turn), torch.sin(turn)
        zero = torch.zeros(())
        matrix = torch.stack([torch.stack([cos, -sin, zero]), torch.stack([sin, cos, zero])])
        grid = F.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        turned = F.grid_sample(images.float(), grid, mode="bilinear", align_corners=False)
        return turned.round().clamp(0, 255).to(torch.uint8)


def resized(images: Tensor, size: int) -> Tensor:
    """Return uint8 images with another side."""
    if images.shape[-1] == size or len(images) == 0:
        return images if len(images) else images.new_zeros(0, 3, size, size)
    found = F.interpolate(
        images.float(), size=(size, size), mode="bilinear", antialias=True, align_corners=False
    )
    return found.round().clamp(0, 255).to(torch.uint8)
