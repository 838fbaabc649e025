"""CNAPS as Avalanche strategies: `strategy.train(experience)`, `strategy.eval(stream)`, any plugin or logger.

One pass over an experience, in the loader's order and without oversampling: statistics count every image once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cl_cnaps.continual.batches import as_images, experience_images, task_of
from cl_cnaps.continual.continual_cnaps import ClassIds, ContinualCnaps, ContinualConfig, Covariance
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.evaluator import Evaluator, QueryScope, QuerySet
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.continual.one_pass import OnePassStrategy, with_parts
from cl_cnaps.continual.stream import Head
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import CnapsModel, ModelName
from cl_cnaps.models.loading import load_model


class CnapsStrategy(OnePassStrategy):
    """Learns class statistics under a moving, first or averaging task encoding; predicts with one or many heads.

    The model must be given images in [0, 1] (as `ToTensor` makes them) or uint8, grey or RGB, of any size: it
    resizes and normalises them itself.

    Experiences that were not learned yet can be evaluated: all classes seen so far compete for them, and before
    the first one every answer is class 0.
    """

    model_name: ClassVar[ModelName]
    model: ContinualCnaps
    """What was learned so far."""

    def __init__(
        self,
        *,
        model: CnapsModel | None = None,
        encoding: EncodingName = "first",
        head: Head = "single",
        class_ids: ClassIds = "shared",
        covariance: Covariance = "seen",
        memory_rank: int | None = None,
        shortlist: int | None = None,
        query_scope: QueryScope = "task",
        query_stream: Sequence[Any] | None = None,
        train_mb_size: int = 64,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[Any] | None = None,
        **template: Any,
    ) -> None:
        """Make a strategy.

        Args:
            model: from `cl_cnaps.load(...).model`; the shipped default if not given.
            encoding: moving, first or averaging.
            head: single (all classes seen compete) or multi (the task label chooses the classes).
            class_ids: per-task where class ids start from zero in each experience.
            covariance: task (each class keeps the covariance that its own task gave it, as in the paper) or seen (of
                all classes seen so far: neither order nor split into tasks matters).
            memory_rank: most directions that are kept of a class's scatter, the rest as a multiple of the identity;
                all if not given.
            shortlist: classes that are scored exactly for a query, those with the nearest means; all if not given.
            query_scope: transductive, single head: refine on each experience alone, or on all experiences learned
                so far that are evaluated together. The multi head always refines on the experience, whose classes
                are the only candidates.
            query_stream: transductive: where the unlabelled queries of each task are found while it is learned,
                usually `benchmark.test_stream`; experience i of it belongs to training experience i. Only its
                images are read.
            train_mb_size: images per batch handed to plugins while training.
            eval_mb_size: the same in evaluation; no result depends on either.
            device: where to compute.
            plugins: Avalanche plugins.
            template: further keyword arguments of Avalanche's SupervisedTemplate, such as `evaluator`.
        """
        if head not in ("single", "multi"):
            raise BadInputError(f"unknown head {head!r}; there are single and multi")
        chosen = model if model is not None else load_model(self.model_name).model
        if chosen.name != self.model_name:
            raise BadInputError(f"{type(self).__name__} needs a {self.model_name} model, got {chosen.name}")
        config = ContinualConfig(encoding, class_ids, covariance, memory_rank, shortlist)
        super().__init__(
            model=ContinualCnaps(chosen.to(device), config),
            optimizer=None,
            criterion=template.pop("criterion", nn.CrossEntropyLoss()),
            train_mb_size=train_mb_size,
            train_epochs=1,
            eval_mb_size=eval_mb_size or train_mb_size,
            device=torch.device(device),
            plugins=list(plugins or []),
            **template,
        )
        self.head = head
        self.scores = Evaluator(self.model, query_scope)
        self._query_stream = query_stream
        self._together: dict[int, QuerySet] = {}

    def learn_batches(self, batches: Sequence[Any]) -> Tensor:
        """Learn the experience; its logits are those of the stored classes, without refinement.

        Its images are labelled, so there is nothing to refine on.
        """
        images = torch.cat([as_images(batch[0]) for batch in batches])
        labels = torch.cat([batch[1] for batch in batches])
        task = task_of(self.experience, batches)
        features = self.model.learn(images, labels, task, self._queries_of_this_task())
        self.model.experiences.add(_number(self.experience))
        keys = self.model.classes_of([task]) if self.head == "multi" else self.model.memory.keys
        return self._by_column(self.model.stored_logits(features, keys), keys, task, labels)

    def _queries_of_this_task(self) -> Tensor | None:
        """The unlabelled images of the current task's queries."""
        if not self.model.model.uses_queries_to_encode or self.model.encoding.settled:
            return None
        if self._query_stream is None:
            raise BadInputError(
                f"{type(self).__name__} encodes a task from its unlabelled query images too: "
                "pass query_stream=benchmark.test_stream"
            )
        number = _number(self.experience)
        if number >= len(self._query_stream):
            raise BadInputError(
                f"query_stream has {len(self._query_stream)} experiences, none for training experience {number}"
            )
        return experience_images(self._query_stream[number], self.eval_mb_size)

    # Evaluation: whole query sets, nothing changes.

    @torch.no_grad()
    def eval(self, experiences: Any, **kwargs: Any) -> dict[str, Any]:
        """Evaluate experiences; see Avalanche's BaseTemplate.eval."""
        together = [experiences] if not isinstance(experiences, Iterable) else list(experiences)
        self._together = self._query_sets(together) if self._refines_together else {}
        try:
            metrics: dict[str, Any] = super().eval(together, **kwargs)
            return metrics
        finally:
            self._together = {}

    @property
    def _refines_together(self) -> bool:
        return self.head == "single" and self.scores.refines_together

    def eval_epoch(self, **kwargs: Any) -> None:
        """Classify the experience's queries as one set, then hand the answers out batch by batch."""
        batches = list(self.dataloader)
        if not batches:
            return
        task = task_of(self.experience, batches)
        queries = self._together.get(id(self.experience))
        if queries is None:
            queries = QuerySet.of(torch.cat([as_images(batch[0]) for batch in batches]), [task])
        outputs = self._outputs(queries, task, torch.cat([batch[1] for batch in batches]))
        for self.mbatch, output in with_parts(batches, outputs):
            self._unpack_minibatch()
            self._before_eval_iteration(**kwargs)
            self._before_eval_forward(**kwargs)
            self.mb_output = output
            self._after_eval_forward(**kwargs)
            self.loss = self.criterion()
            self._after_eval_iteration(**kwargs)

    def forward(self) -> Tensor:
        """Logits of the current batch alone, for plugins; the loops above use whole query sets instead."""
        task = task_of(self.experience, [self.mbatch])
        return self._outputs(QuerySet.of(as_images(self.mb_x), [task]), task, self.mb_y)

    def _query_sets(self, experiences: Sequence[Any]) -> dict[int, QuerySet]:
        """The queries of the experiences learned so far, with their features at hand.

        By the experience's identity, since a training and a test experience may have the same number. Put in order,
        so that the order in which they are evaluated changes no digit.
        """
        known = {id(exp): exp for exp in experiences if _number(exp) in self.model.experiences}
        ordered = sorted(known.values(), key=lambda exp: (_number(exp), exp.origin_stream.name))
        sets = {}
        for exp in ordered:
            queries = QuerySet.of(experience_images(exp, self.eval_mb_size), [])
            self.scores.features(queries)
            sets[id(exp)] = queries.without_images()
        return sets

    def _outputs(self, queries: QuerySet, task: int, labels: Tensor) -> Tensor:
        """What plugins see as the answers to a whole query set; zeros before anything is learned."""
        keys = self.scores.competing(queries, self.head)
        if not keys:
            return torch.zeros(len(labels), 1 + int(labels.max()), device=self.device)
        logits_QK = self.scores.logits(queries, self.head, tuple(self._together.values()))
        return self._by_column(logits_QK, keys, task, labels)

    def _by_column(self, logits_QK: Tensor, keys: Sequence[ClassKey], task: int, labels: Tensor) -> Tensor:
        """Logits with class id c in column c; ids that do not compete get a low score.

        With per-task ids a class of another task has no column of its own that would be right to choose: it comes
        after all ids, where choosing it counts as the mistake it is. Labels are looked at for their number alone.
        """
        width = 1 + max([int(labels.max()), *(key.label for key in self.model.memory.keys)])
        foreign = [key for key in keys if key.task not in (-1, task)]
        column = {key: width + i for i, key in enumerate(foreign)}
        column |= {key: key.label for key in keys if key.task in (-1, task)}
        # Low per query, so that it depends on nothing else in the batch, and finite, so that losses are.
        full = (logits_QK.min(dim=1, keepdim=True).values - 100).repeat(1, width + len(foreign))
        full[:, [column[key] for key in keys]] = logits_QK
        return full


class SimpleCnapsStrategy(CnapsStrategy):
    """Simple CNAPS on a stream."""

    model_name = "simple"


class TransductiveCnapsStrategy(CnapsStrategy):
    """Transductive CNAPS on a stream: unlabelled queries take part in the encoding and in the classes."""

    model_name = "transductive"


class OriginalCnapsStrategy(CnapsStrategy):
    """The original CNAPS, with its generated linear classifier, on a stream."""

    model_name = "cnaps"


class ProtoNetStrategy(CnapsStrategy):
    """Nearest class mean in Euclidean distance on the adapted features."""

    model_name = "protonet"


STRATEGIES: dict[ModelName, type[CnapsStrategy]] = {
    strategy.model_name: strategy
    for strategy in (SimpleCnapsStrategy, TransductiveCnapsStrategy, OriginalCnapsStrategy, ProtoNetStrategy)
}


def _number(experience: Any) -> int:
    """An experience's place in its stream; of a part of one, where its task may be known, the place of the whole."""
    try:
        whole = getattr(experience, "origin_experience", None) or experience
    except ValueError:  # Avalanche hides it in streams without task boundaries
        whole = experience
    return int(whole.current_experience)
