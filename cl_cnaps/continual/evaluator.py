"""The one evaluator: `cl-cnaps stream` and the Avalanche strategies score whole query sets through it, for both heads.

It keeps features and logits while they hold: no image is embedded twice while the feature extractor stays, a group of
classes is factored once for all query sets at hand, and the multi head never scores classes of other tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from cl_cnaps.continual.continual_cnaps import ContinualCnaps
from cl_cnaps.continual.memory import ClassGroup, ClassKey, ClassMemory, in_order
from cl_cnaps.continual.stream import Head
from cl_cnaps.errors import BadInputError

QueryScope = Literal["task", "stream"]

_MOST_KEPT = 1 << 27
"""Most numbers in features that are kept from one learning step to the next: 512 MB in float32."""


@dataclass(frozen=True)
class QuerySet:
    """Unlabelled images that are classified together; sets of equal images and tasks are equal."""

    digest: bytes
    tasks: tuple[int, ...]
    images: Tensor | None = field(repr=False, compare=False)
    """uint8, Q x 3 x H x W; None where their features are known."""

    @staticmethod
    def of(images: Tensor, tasks: Sequence[int]) -> QuerySet:
        """Make the set of these images, whose task labels are among `tasks`."""
        content = hashlib.blake2b(images.cpu().contiguous().numpy().data, digest_size=16)
        content.update(str(tuple(images.shape)).encode())
        return QuerySet(content.digest(), tuple(tasks), images)

    def without_images(self) -> QuerySet:
        """Return the set alone, to save memory."""
        return replace(self, images=None)


_Owner = ClassGroup | ClassMemory
"""What logits depend on beside the features: a group of classes, or all classes together."""


_Name = tuple[bool, tuple[bytes, ...], tuple[ClassKey, ...]]
"""Of logits: whether they are refined, on which query sets, under which classes."""


class Evaluator:
    """Answers for the classes that a continual model has learned, and never changes it."""

    def __init__(self, cnaps: ContinualCnaps, scope: QueryScope = "task") -> None:
        """Make an evaluator.

        Args:
            cnaps: the model, which may go on learning.
            scope: transductive, single head: refine on each query set alone, or on all that are evaluated together.
        """
        if scope not in ("task", "stream"):
            raise BadInputError(f"unknown query scope {scope!r}; there are task and stream")
        self.cnaps = cnaps
        self.scope = scope
        self._adaptations = -1
        self._memory: ClassMemory | None = None
        self._features: dict[bytes, Tensor] = {}
        self._logits: dict[_Name, tuple[set[_Owner], Tensor]] = {}

    @property
    def refines_together(self) -> bool:
        """Whether the single head refines on all query sets that are evaluated together."""
        return self.cnaps.transductive and self.scope == "stream"

    def competing(self, queries: QuerySet, head: Head) -> tuple[ClassKey, ...]:
        """Return the classes that compete: for tasks that were not learned all, of which none is right."""
        own = self.cnaps.classes_of(queries.tasks) if head == "multi" else ()
        return own or self.cnaps.memory.keys

    @torch.no_grad()
    def features(self, queries: QuerySet) -> Tensor:
        """Return features Q x D under the current adaptation, embedded at most once for it."""
        self._drop_stale()
        if queries.digest not in self._features:
            assert queries.images is not None
            self._features[queries.digest] = self.cnaps.embed(queries.images)
        return self._features[queries.digest]

    @torch.no_grad()
    def logits(self, queries: QuerySet, head: Head, together: Sequence[QuerySet] = ()) -> Tensor:
        """Return logits Q x K of the `competing` classes, refined if the model does so.

        Args:
            queries: the whole set.
            head: which classes compete.
            together: query sets that are evaluated at this step. What is missing of them is computed at the same time,
                and where `refines_together` holds they are refined together.
        """
        self._drop_stale()
        keys = self.competing(queries, head)
        if not keys:
            raise BadInputError("nothing has been learned yet")
        # Where all classes compete, they do for all sets; in the multi head a task has its own.
        shared = head == "single" and queries in together
        peers = tuple(together) if shared else (queries,)
        if not self.cnaps.transductive:
            return self._stored(queries, keys, peers)
        jointly = peers if self.refines_together else (queries,)
        features = [self.features(one) for one in jointly]
        name = (True, tuple(one.digest for one in jointly), keys)
        if name not in self._logits:
            stored = torch.cat([self._stored(one, keys, peers) for one in jointly])
            covered = (shared and self.refines_together) or self.cnaps.covers(queries.tasks, keys)
            refined = self.cnaps.logits(torch.cat(features), keys, stored, covered=covered)
            self._logits[name] = (set(self._owners(keys)), refined)
        parts = torch.split(self._logits[name][1], [len(part) for part in features])
        return parts[jointly.index(queries)]

    def _owners(self, keys: Sequence[ClassKey]) -> tuple[_Owner, ...]:
        """Return what the logits of these classes depend on."""
        memory = self.cnaps.memory
        return (memory,) if self.cnaps.pools_covariance else memory.groups_of(keys)

    def _stored(self, queries: QuerySet, keys: tuple[ClassKey, ...], peers: Sequence[QuerySet]) -> Tensor:
        """Return logits Q x K before refinement, with those of the query sets `peers` computed at the same time."""
        parts = []
        for owner in self._owners(keys):
            scored = owner.keys
            # With a covariance of all classes, any can be scored alone: none but these, unless all are at hand.
            at_hand = (
                False,
                (queries.digest,),
                scored,
            ) in self._logits and self.cnaps.config.shortlist is None
            if isinstance(owner, ClassMemory) and not at_hand:
                scored = keys
            parts.append((scored, self._scored(queries, scored, owner, peers)))
        return in_order(parts, keys)

    def _scored(
        self, queries: QuerySet, keys: tuple[ClassKey, ...], owner: _Owner, peers: Sequence[QuerySet]
    ) -> Tensor:
        """Return logits under classes that are factored together: once, for all of `peers` that have none yet."""
        if (False, (queries.digest,), keys) not in self._logits:
            new = {one.digest: one for one in peers if (False, (one.digest,), keys) not in self._logits}
            features = [self.features(one) for one in new.values()]
            if isinstance(owner, ClassGroup):
                found = self.cnaps.group_logits(owner, torch.cat(features))
            else:
                found = self.cnaps.pooled_logits(keys, torch.cat(features))
            for digest, part in zip(new, torch.split(found, [len(f) for f in features]), strict=True):
                self._logits[False, (digest,), keys] = ({owner}, part)
        return self._logits[False, (queries.digest,), keys][1]

    def _drop_stale(self) -> None:
        """Forget what the last learning step changed."""
        cnaps = self.cnaps
        if (cnaps.adaptations, cnaps.memory) == (self._adaptations, self._memory):
            return
        kept = sum(features.numel() for features in self._features.values())
        if cnaps.adaptations != self._adaptations or kept > _MOST_KEPT:
            self._features, self._logits = {}, {}
        alive = {cnaps.memory, *cnaps.memory.groups}
        self._logits = {name: entry for name, entry in self._logits.items() if entry[0] <= alive}
        self._adaptations, self._memory = cnaps.adaptations, cnaps.memory
