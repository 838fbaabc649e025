"""What is kept of the classes of a stream, never images: counts, means, and covariances of each and of all.

It is a value: learning returns a new one, so evaluating cannot change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    Gaussians,
    Moment,
    Scatter,
    Statistics,
    at_most_width,
    combine,
    concatenate,
    join,
    merge,
)

_JOINED = 4096
"""Most classes of a group that small groups are joined to."""


class ClassKey(NamedTuple):
    """Which class: `task` is -1 where a class id means the same class in every task."""

    task: int
    label: int


@dataclass(frozen=True, eq=False)
class ClassGroup:
    """Classes that were learned together and so share one task covariance."""

    keys: tuple[ClassKey, ...]
    gaussians: Gaussians
    statistics: Statistics | None
    """Kept for the transductive model alone, which needs Sigma_k apart from Q_k."""

    def select(self, positions: Sequence[int]) -> ClassGroup:
        """Some of the classes."""
        chosen = torch.tensor(positions, dtype=torch.int64, device=self.gaussians.means_KD.device)
        return ClassGroup(
            tuple(self.keys[i] for i in positions),
            self.gaussians.select(chosen),
            None if self.statistics is None else self.statistics.select(chosen),
        )

    def merged(self, new: ClassGroup, rank: int | None = None) -> tuple[ClassGroup, Tensor | None]:
        """Stored and new parameters of the same classes, averaged by count, as `compressed` returns them."""
        statistics = None
        if self.statistics is not None and new.statistics is not None:
            statistics = combine(self.statistics, new.statistics)
        return ClassGroup(self.keys, merge(self.gaussians, new.gaussians), statistics).compressed(rank)

    def compressed(self, rank: int | None) -> tuple[ClassGroup, Tensor | None]:
        """The same classes as they are stored, and rows of what was left out of the statistics' scatters.

        `rank` is the most directions that are kept of a scatter.
        """
        gaussians, statistics, left_RD = self.gaussians.compressed(rank), self.statistics, None
        if statistics is not None and (rank is None or rank >= statistics.width):
            statistics = statistics.compressed()
        elif statistics is not None and rank is not None:
            statistics, left_RD = statistics.reduced(rank)
        return ClassGroup(self.keys, gaussians, statistics), left_RD


@dataclass(frozen=True, eq=False)
class ClassMemory:
    """All classes seen so far, in groups."""

    groups: tuple[ClassGroup, ...] = ()
    within_RD: Tensor | None = None
    """Fewer than D rows whose Gram is the sum of all classes' scatters; None where it is not kept, or `moment` is."""
    rank: int | None = None
    """Most directions that are kept of the scatter of a class; None: all."""
    left_RD: Tensor | None = None
    """At most D rows whose Gram is the sum of what was left out of the classes' scatters; None where nothing was."""
    moment: Moment | None = None
    """In place of `within_RD` once that would have as many rows as there are features."""

    @cached_property
    def keys(self) -> tuple[ClassKey, ...]:
        """Every class, in the order of the groups."""
        return tuple(key for group in self.groups for key in group.keys)

    def groups_of(self, keys: Iterable[ClassKey]) -> tuple[ClassGroup, ...]:
        """The groups that have any of these classes."""
        wanted = set(keys)
        return tuple(group for group in self.groups if not wanted.isdisjoint(group.keys))

    def learn(self, new: ClassGroup, *, pool: bool = False) -> ClassMemory:
        """The memory after one more task: new classes stored, seen ones merged by count.

        With `pool` it also keeps what the covariance of all classes seen is made of, in a size that stays the same
        however many classes there are.
        """
        if len(set(new.keys)) != len(new.keys):
            raise BadInputError("a class occurs twice among the classes of one task")
        within_RD, moment = self._pooled_after(new) if pool else (None, None)
        new, left_RD = new.compressed(self.rank)
        left = [self.left_RD, left_RD]
        position = {key: i for i, key in enumerate(new.keys)}
        groups = []
        for group in self.groups:
            again = [i for i, key in enumerate(group.keys) if key in position]
            if not again:
                groups.append(group)
                continue
            rest = [i for i, key in enumerate(group.keys) if key not in position]
            if rest:
                groups.append(group.select(rest))
            old = group.select(again)
            both, left_RD = old.merged(new.select([position[key] for key in old.keys]), self.rank)
            groups.append(both)
            left.append(left_RD)
        known = set(self.keys)
        fresh = [i for i, key in enumerate(new.keys) if key not in known]
        if fresh:
            groups.append(new if len(fresh) == len(new.keys) else new.select(fresh))
        if pool and self.rank is not None:  # no class depends on its group: keep few groups
            groups = _joined(groups)
        rows = [part for part in left if part is not None] if pool else []
        left_RD = at_most_width(torch.cat(rows)) if rows else None
        return ClassMemory(tuple(groups), within_RD, self.rank, left_RD, moment)

    def without(self, key: ClassKey) -> ClassMemory:
        """The memory as if a class had never been learned.

        What it gave to the covariance of its task stays with the others of that task; where scatters are reduced, so
        does its part in the covariance of all classes.
        """
        if key not in self.keys:
            return self
        groups = []
        for group in self.groups:
            rest = [i for i, own in enumerate(group.keys) if own != key]
            if rest:
                groups.append(group if len(rest) == len(group.keys) else group.select(rest))
        if not groups:
            return ClassMemory(rank=self.rank)
        left = [group.statistics for group in groups if group.statistics is not None]
        rest_alone = replace(self, groups=tuple(groups))
        if self.moment is None and self.within_RD is None:
            return rest_alone
        if any(one.floor_K is not None for one in left):  # the class's own scatter is not known any more
            if self.moment is None:
                return rest_alone
            gone = self.statistics([key])
            means = replace(gone, rows_RD=gone.rows_RD[:0], row_class_R=gone.row_class_R[:0], scale_R=None)
            return replace(rest_alone, moment=self.moment.plus(means, sign=-1))
        # Made anew, since taking away numbers that are rounded leaves their rounding behind.
        if self.moment is None:
            return replace(rest_alone, within_RD=torch.cat([one.rows_RD for one in left]))
        moment = replace(self.moment, sum_DD=torch.zeros_like(self.moment.sum_DD))
        for one in left:
            moment = moment.plus(one)
        return replace(rest_alone, moment=moment)

    def _pooled_after(self, new: ClassGroup) -> tuple[Tensor | None, Moment | None]:
        """Rows of the summed scatter of all classes once `new` has been learned, or the moment of all images."""
        if new.statistics is None or (self.groups and self.within_RD is None and self.moment is None):
            raise BadInputError("this memory keeps no statistics, which the covariance of all classes needs")
        if self.moment is not None:
            return None, self.moment.plus(new.statistics)
        parts = [new.statistics.rows_RD]
        if self.within_RD is not None:
            parts = [self.within_RD, *parts, *self._between_again(new.keys, new.statistics)]
        if sum(map(len, parts)) < new.statistics.width:
            return torch.cat(parts).detach(), None
        return None, self._first_moment(new.statistics).plus(new.statistics)

    def _between_again(self, keys: Sequence[ClassKey], new: Statistics) -> list[Tensor]:
        """What lies between two means of a class that is seen again: it is scatter of that class."""
        known = set(self.keys)
        again = [i for i, key in enumerate(keys) if key in known]
        if not again:
            return []
        old = self.statistics([keys[i] for i in again])
        counts_K, means_KD = new.counts_K[again], new.means_KD[again]
        weights_K = (old.counts_K * counts_K / (old.counts_K + counts_K)).sqrt()
        return [weights_K[:, None] * (means_KD - old.means_KD)]

    def _first_moment(self, new: Statistics) -> Moment:
        """The moment of the images seen before `new`, about their mean, or that of `new` if there are none."""
        if self.within_RD is None:
            centre_D = new.task_mean_D.double()
            return Moment(centre_D, torch.zeros_like(torch.outer(centre_D, centre_D)))
        _, mean_D = self._total_and_mean()
        rows_RD = torch.cat([self.within_RD, *self._between(mean_D)]).double()
        return Moment(mean_D.double(), rows_RD.T @ rows_RD)

    def _total_and_mean(self) -> tuple[Tensor, Tensor]:
        """Number of all images seen, and their mean."""
        classes = [group.gaussians for group in self.groups]
        total = torch.cat([one.counts_K for one in classes]).sum()
        return total, torch.stack([(one.counts_K / total) @ one.means_KD for one in classes]).sum(dim=0)

    def _between(self, mean_D: Tensor) -> Iterator[Tensor]:
        """Rows of the scatter of the class means."""
        classes = (group.gaussians for group in self.groups)
        return (one.counts_K.sqrt()[:, None] * (one.means_KD - mean_D) for one in classes)

    @cached_property
    def scatter(self) -> Scatter:
        """The scatter of all images seen: within the classes, and between them."""
        if self.within_RD is None and self.moment is None:
            raise BadInputError("this memory keeps no statistics, which the covariance of all classes needs")
        total, mean_D = self._total_and_mean()
        floors = [group.statistics.floor_K for group in self.groups if group.statistics is not None]
        reduced = [floor.sum() for floor in floors if floor is not None]
        floor, left_RD = (torch.stack(reduced).sum(), self.left_RD) if reduced else (None, None)
        if self.moment is not None:
            nothing_0D = mean_D.new_zeros(0, len(mean_D))
            return Scatter(nothing_0D, total, floor, left_RD, self.moment.scatter_DD(total, mean_D))
        assert self.within_RD is not None
        return Scatter(torch.cat([self.within_RD, *self._between(mean_D)]), total, floor, left_RD)

    def statistics(self, keys: Sequence[ClassKey]) -> Statistics:
        """Support statistics of some classes side by side, in the order given."""
        parts: list[Statistics] = []
        found: list[ClassKey] = []
        wanted = set(keys)
        for group in self.groups:
            here = [i for i, key in enumerate(group.keys) if key in wanted]
            if not here:
                continue
            part = group.select(here)
            if part.statistics is None:
                raise BadInputError("this memory keeps no support statistics, which refinement needs")
            parts.append(part.statistics)
            found += part.keys
        missing = wanted - set(found)
        if missing:
            raise BadInputError(f"classes that were never learned: {sorted(missing)}")
        position = {key: i for i, key in enumerate(found)}
        order = torch.tensor([position[key] for key in keys], device=parts[0].means_KD.device)
        return join(parts).select(order)

    def nbytes(self) -> int:
        """Memory taken; what groups share, or a group holds twice, is counted once."""
        held: list[Any] = [self.within_RD, self.left_RD]
        held += [] if self.moment is None else [self.moment.centre_D, self.moment.sum_DD]
        for group in self.groups:
            for part in (group.gaussians, group.statistics):
                values = [] if part is None else [getattr(part, one.name) for one in fields(part)]
                held += [one for value in values for one in (value if isinstance(value, tuple) else [value])]
        tensors = {tensor.data_ptr(): tensor for tensor in held if isinstance(tensor, Tensor)}
        return sum(tensor.nbytes for tensor in tensors.values())

    # In and out of plain values, so that a state dict can hold the memory and weights_only loading can read it.

    def state(self) -> dict[str, Any]:
        """Plain lists, numbers and tensors."""
        groups = [
            {
                "keys": [list(key) for key in group.keys],
                "gaussians": _fields(group.gaussians),
                "statistics": None if group.statistics is None else _fields(group.statistics),
            }
            for group in self.groups
        ]
        moment = None if self.moment is None else _fields(self.moment)
        return {
            "groups": groups,
            "within": self.within_RD,
            "rank": self.rank,
            "left": self.left_RD,
            "moment": moment,
        }

    @staticmethod
    def from_state(
        state: Mapping[str, Any], device: torch.device, dtype: torch.dtype = torch.float32
    ) -> ClassMemory:
        """The memory that `state` was made from, for a model of this precision on this device."""
        # Statistics are never kept in half precision, which cannot count.
        dtype = torch.promote_types(dtype, torch.float32)
        groups = []
        for entry in state["groups"]:
            gaussians = {name: _moved(value, device, dtype) for name, value in entry["gaussians"].items()}
            statistics = entry["statistics"]
            groups.append(
                ClassGroup(
                    tuple(ClassKey(*key) for key in entry["keys"]),
                    Gaussians(**gaussians),
                    None
                    if statistics is None
                    else Statistics(
                        **{name: _moved(value, device, dtype) for name, value in statistics.items()}
                    ),
                )
            )
        within_RD, left_RD = (_moved(state[name], device, dtype) for name in ("within", "left"))
        moment = state["moment"]
        if moment is not None:
            moment = Moment(**{name: _moved(value, device, torch.float64) for name, value in moment.items()})
        return ClassMemory(tuple(groups), within_RD, state["rank"], left_RD, moment)


def _joined(groups: list[ClassGroup]) -> list[ClassGroup]:
    """The groups with the last ones joined while they are of like size, so that each class is copied few times."""
    while len(groups) > 1:
        first, last = groups[-2:]
        if len(first.keys) > 2 * len(last.keys) or len(first.keys) + len(last.keys) > _JOINED:
            break
        assert first.statistics is not None
        assert last.statistics is not None
        statistics = join([first.statistics, last.statistics])
        gaussians = replace(
            concatenate([first.gaussians, last.gaussians]),
            counts_K=statistics.counts_K,
            means_KD=statistics.means_KD,
        )
        groups = [*groups[:-2], ClassGroup(first.keys + last.keys, gaussians, statistics)]
    return groups


def _fields(value: Gaussians | Statistics | Moment) -> dict[str, Any]:
    parts = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
    return {name: list(part) if isinstance(part, tuple) else part for name, part in parts.items()}


def _moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        keep = not value.is_floating_point() or value.dtype == torch.float16  # rows of a reduced scatter
        return value.to(device, value.dtype if keep else dtype)
    if isinstance(value, list):
        return tuple(_moved(item, device, dtype) for item in value)
    return value


def in_order(parts: Sequence[tuple[Sequence[ClassKey], Tensor]], keys: Sequence[ClassKey]) -> Tensor:
    """Return logits Q x K in the order of `keys`, from those of groups of classes."""
    column = {key: i for i, key in enumerate(key for group, _ in parts for key in group)}
    missing = [key for key in keys if key not in column]
    if missing:
        raise BadInputError(f"classes that were never learned: {missing}")
    return torch.cat([part for _, part in parts], dim=1)[:, [column[key] for key in keys]]
