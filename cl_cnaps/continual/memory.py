"""What is kept of a stream: the task encoding, and of its classes counts, means and factored covariances, never images.

Both are values: learning returns a new one, so evaluating cannot change it.

How the task encoding d^t moves along a stream (Section "Continual Learning") is one small function of d^(t-1), of what
task t by itself is encoded as, and of t. `encoding` adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import (
    Gaussians,
    Scatter,
    Statistics,
    at_most_width,
    combine,
    concatenate,
    join,
    merge,
    summed_rows,
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
    """At most D rows whose Gram is the sum of all classes' scatters; None where it is not kept."""
    rank: int | None = None
    """Most directions that are kept of the scatter of a class; None: all."""
    left_RD: Tensor | None = None
    """At most D rows whose Gram is the sum of what was left out of the classes' scatters; None where nothing was."""

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
        within_RD = self._within_after(new) if pool else None
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
        return ClassMemory(tuple(groups), within_RD, self.rank, left_RD)

    def without(self, key: ClassKey) -> ClassMemory:
        """The memory as if a class had never been learned.

        What it gave to the covariance of its task stays with the others of that task; where scatters are reduced, so
        does its part in the covariance of all classes.
        """
        groups = []
        for group in self.groups:
            rest = [i for i, own in enumerate(group.keys) if own != key]
            if rest:
                groups.append(group if len(rest) == len(group.keys) else group.select(rest))
        within_RD = self.within_RD
        if within_RD is not None and self.rank is None:
            rows = [group.statistics.rows_RD for group in groups if group.statistics is not None]
            within_RD = at_most_width(torch.cat(rows))
        return replace(self, groups=tuple(groups), within_RD=within_RD)

    def _within_after(self, new: ClassGroup) -> Tensor:
        """Rows of the summed scatter of all classes once `new` has been learned."""
        if new.statistics is None or (self.groups and self.within_RD is None):
            raise BadInputError("this memory keeps no statistics, which the covariance of all classes needs")
        parts = (
            [new.statistics.rows_RD] if self.within_RD is None else [self.within_RD, new.statistics.rows_RD]
        )
        again = [i for i, key in enumerate(new.keys) if key in set(self.keys)]
        if again:  # two means of one class: what lies between them is scatter of that class
            old = self.statistics([new.keys[i] for i in again])
            counts_K, means_KD = new.statistics.counts_K[again], new.statistics.means_KD[again]
            weights_K = (old.counts_K * counts_K / (old.counts_K + counts_K)).sqrt()
            parts.append(weights_K[:, None] * (means_KD - old.means_KD))
        return at_most_width(torch.cat(parts))

    @cached_property
    def scatter(self) -> Scatter:
        """The scatter of all images seen: within the classes, and between them."""
        if self.within_RD is None:
            raise BadInputError("this memory keeps no statistics, which the covariance of all classes needs")
        classes = [group.gaussians for group in self.groups]
        total = torch.cat([one.counts_K for one in classes]).sum()
        mean_D = torch.stack([(one.counts_K / total) @ one.means_KD for one in classes]).sum(dim=0)
        between = (one.counts_K.sqrt()[:, None] * (one.means_KD - mean_D) for one in classes)
        rows_RD = summed_rows(self.within_RD, between)
        floors = [group.statistics.floor_K for group in self.groups if group.statistics is not None]
        reduced = [floor.sum() for floor in floors if floor is not None]
        if not reduced:
            return Scatter(rows_RD, total)
        return Scatter(rows_RD, total, torch.stack(reduced).sum(), self.left_RD)

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
        return {"groups": groups, "within": self.within_RD, "rank": self.rank, "left": self.left_RD}

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
        within_RD, left_RD = (_moved(state.get(name), device, dtype) for name in ("within", "left"))
        return ClassMemory(tuple(groups), within_RD, state.get("rank"), left_RD)


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


def _fields(value: Gaussians | Statistics) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {
        name: list(content) if isinstance(content, tuple) else content for name, content in fields.items()
    }


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


EncodingName = str
"""A name in `ENCODINGS`."""

EncodingRule = Callable[[Tensor, Tensor, int], Tensor]
"""d^t of d^(t-1), the encoding of task t by itself, and t = 2, 3, ...; d^1 is that of the first task by itself."""

ENCODINGS: dict[EncodingName, EncodingRule] = {}


def encoding(name: EncodingName) -> Callable[[EncodingRule], EncodingRule]:
    """Register a rule under a name, for strategies and the command line."""

    def register(rule: EncodingRule) -> EncodingRule:
        if name in ENCODINGS:
            raise BadInputError(f"there is an encoding called {name!r} already")
        ENCODINGS[name] = rule
        return rule

    return register


@encoding("moving")
def moving(_before: Tensor, own: Tensor, _t: int) -> Tensor:
    """That of the latest task."""
    return own


@encoding("first")
def first(before: Tensor, _own: Tensor, _t: int) -> Tensor:
    """That of the first task for ever."""
    return before


@encoding("averaging")
def averaging(before: Tensor, own: Tensor, t: int) -> Tensor:
    """The mean over all tasks so far."""
    return own / t + before * ((t - 1) / t)


@dataclass(frozen=True)
class StreamEncoding:
    """d^t and how many tasks went into it; `observe` gives the next one and leaves this one alone."""

    kind: EncodingName
    tasks: int = 0
    value: Tensor | None = None

    def __post_init__(self) -> None:
        if self.kind not in ENCODINGS:
            raise BadInputError(f"unknown encoding {self.kind!r}; there are {', '.join(ENCODINGS)}")

    @property
    def settled(self) -> bool:
        """Whether no later task can change it, so that later tasks need not be encoded."""
        return self.kind == "first" and self.tasks > 0

    def observe(self, own: Tensor | None) -> StreamEncoding:
        """The encoding after one more task, whose own encoding is given (None where features are frozen)."""
        tasks = self.tasks + 1
        if self.settled:
            return replace(self, tasks=tasks)
        if own is None or self.value is None:
            return replace(self, tasks=tasks, value=own)
        value = ENCODINGS[self.kind](self.value, own, tasks)
        if value.shape != own.shape:
            raise BadInputError(
                f"the encoding {self.kind!r} must give a vector of {own.numel()} numbers, not {tuple(value.shape)}"
            )
        return replace(self, tasks=tasks, value=value)

    def state(self) -> dict[str, Any]:
        """Plain values, for a state dict."""
        return {"kind": self.kind, "tasks": self.tasks, "value": self.value}
