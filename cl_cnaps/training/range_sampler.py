"""Tasks of a way and a shot drawn uniformly from ranges: small ones for small machines."""

from __future__ import annotations

from cl_cnaps.episodes import Episode, EpisodeSampler, FixedConfig, FixedSampler, MetaDatasetSampler
from cl_cnaps.episodes.episode import Purpose, episode_generator
from cl_cnaps.episodes.spec import ClassTable, DatasetSpec, SplitSpec
from cl_cnaps.errors import BadInputError
from cl_cnaps.training.recipe import RangeTasks, TaskShape


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
            try:  # so that what is too few is said now, not at some episode
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
    """The sampler that a recipe asks for, over the classes of one pool."""
    if isinstance(tasks, RangeTasks):
        return RangeSampler(source, split, seed=seed, tasks=tasks, grouped=grouped)
    return MetaDatasetSampler(DatasetSpec(source, {"ALL": split}), "ALL", seed=seed, config=tasks)


def _tables(source: str, split: SplitSpec, grouped: bool) -> list[ClassTable]:
    if not grouped:
        return [split.classes]
    if split.groups is None:
        raise BadInputError(f"{source}: `grouped` is asked for, but the classes are in no groups")
    sizes = dict(zip(split.classes.names, split.classes.sizes, strict=True))
    return [ClassTable.of({name: sizes[name] for name in names}) for names in split.groups.values()]
