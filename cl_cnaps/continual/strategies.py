"""CNAPS as Avalanche strategies: `strategy.train(experience)`, `strategy.eval(stream)`, any plugin or logger.

One pass over an experience, in the loader's order and without oversampling: statistics count every image once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from cl_cnaps.continual.batches import (
    by_task,
    class_count,
    experience_number,
    has_task_labels,
    joined_images,
    normalisation_of,
    plain_loader,
    restarts_class_ids,
    stream_length,
)
from cl_cnaps.continual.continual_cnaps import (
    ClassIds,
    ContinualCnaps,
    ContinualConfig,
    Covariance,
)
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.evaluator import Evaluator, QueryScope, QuerySet
from cl_cnaps.continual.one_pass import OnePassStrategy, with_parts
from cl_cnaps.continual.stream import Head
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import CnapsModel, ModelName
from cl_cnaps.models.loading import LoadedModel, load_model, model_of, resolve_device


class CnapsStrategy(OnePassStrategy):
    """Learns class statistics under a moving, first or averaging task encoding; predicts with one or many heads.

    Takes any model of this package; without one the original CNAPS. Images may be PIL, or tensors (uint8, in [0, 1], or
    normalised by a transform of the benchmark, which is undone), grey or RGB, of any sizes: the model resizes and
    normalises them itself.

    Experiences that were not learned yet can be evaluated: all classes seen so far compete for them, and before
    the first one every answer is class 0.
    """

    model_name: ClassVar[ModelName] = "cnaps"
    model: ContinualCnaps
    """What was learned so far."""

    def __init__(
        self,
        *,
        model: LoadedModel | CnapsModel | None = None,
        encoding: EncodingName = "first",
        head: Head = "single",
        class_ids: ClassIds = "auto",
        covariance: Covariance = "seen",
        memory_rank: int | None = None,
        shortlist: int | None = None,
        query_scope: QueryScope = "task",
        query_stream: Sequence[Any] | None = None,
        train_mb_size: int = 64,
        eval_mb_size: int | None = None,
        device: str | torch.device = "auto",
        plugins: Sequence[Any] | None = None,
        **template: Any,
    ) -> None:
        """Make a strategy.

        Args:
            model: from `cl_cnaps.load`; the shipped default if not given.
            encoding: moving, first or averaging.
            head: single (all classes seen compete) or multi (the task label chooses the classes).
            class_ids: shared (the same id is the same class in all experiences), per-task (ids start from zero in each
                experience), or auto: as the benchmark was made.
            covariance: task (each class keeps the covariance that its own task gave it, as in the paper) or seen (of
                all classes seen so far: neither order nor split into tasks matters).
            memory_rank: most directions that are kept of a class's scatter, the rest shared by all classes; all if not
                given.
            shortlist: classes that are scored exactly for a query, those with the nearest means; all if not given.
            query_scope: transductive, single head: refine on each experience alone, or on all experiences learned
                so far that are evaluated together. The multi head always refines on the experience, whose classes
                are the only candidates.
            query_stream: transductive: where the unlabelled queries of each task are found while it is learned,
                usually `benchmark.test_stream`; experience i of it belongs to training experience i. Only its
                images are read.
            train_mb_size: images per batch handed to plugins while training.
            eval_mb_size: the same in evaluation; no result depends on either.
            device: where to compute: auto (a GPU if there is one), cpu, cuda, ...
            plugins: Avalanche plugins; those that need gradients are refused.
            template: `criterion`, `evaluator`, `eval_every` and `peval_mode` of Avalanche's SupervisedTemplate.
        """
        if head not in ("single", "multi"):
            raise BadInputError(f"unknown head {head!r}; there are single and multi")
        if model is None:
            model = load_model(self.model_name, device="cpu")
        chosen = model_of(model)
        if not isinstance(chosen, CnapsModel):
            raise BadInputError(f"the model is what cl_cnaps.load returns, not a {type(chosen).__name__}")
        if type(self) is not CnapsStrategy and chosen.name != self.model_name:
            raise BadInputError(
                f"{type(self).__name__} needs a {self.model_name} model, got {chosen.name}; CnapsStrategy takes any"
            )
        config = ContinualConfig(encoding, class_ids, covariance, memory_rank, shortlist)
        super().__init__(
            model=ContinualCnaps(chosen.to(resolve_device(str(device))), config),
            train_mb_size=train_mb_size,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=plugins,
            **template,
        )
        self.head = head
        self.scores = Evaluator(self.model, query_scope)
        self.image_size = chosen.backbone.info.image_size
        self._query_stream = query_stream
        self._query_sets: dict[int, QuerySet] = {}
        self._numbers_are_tasks: bool | None = None
        self._trained_on = 0
        self._warned = False

    # Reading experiences.

    def _images_of(self, experience: Any) -> Tensor:
        """All images of an experience in their evaluation form; labels are not looked at."""
        dataset = experience.dataset.eval()
        batches = list(plain_loader(dataset, self.eval_mb_size, {}, self.image_size))
        if not batches:
            raise BadInputError(f"experience {experience.current_experience} has no images")
        return joined_images(batches, normalisation_of(dataset), self.image_size)

    def _read(self, batches: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Images, labels and task labels of the current experience."""
        labels = torch.cat([batch[1] for batch in batches])
        return self.joined(batches), labels, self._tasks(batches)

    def _tasks(self, batches: Sequence[Any]) -> Tensor:
        """The task label of every image; the experience's number where tasks matter and there are no labels."""
        images = sum(len(batch[1]) for batch in batches)
        if self._numbers_are_tasks is None:
            matter = self.head == "multi" or self.model.ids_per_task
            self._numbers_are_tasks = matter and not has_task_labels(self.experience)
            if self._numbers_are_tasks and self.head == "multi":
                warnings.warn(
                    "the benchmark has no task labels: the multi head takes the number of an experience for its task",
                    stacklevel=2,
                )
        if self._numbers_are_tasks:
            # A test stream of other length has no experience for each that was learned: all classes compete.
            alike = not self._trained_on or self._trained_on == stream_length(self.experience)
            number = experience_number(self.experience) if self.is_training or alike else -1
            return torch.full((images,), number)
        if not hasattr(self.experience, "task_labels"):
            return torch.zeros(images, dtype=torch.int64)
        return torch.cat([batch[-1] for batch in batches]).cpu()

    def _width(self, labels: Tensor) -> int:
        """Columns that metrics need: one for each class of the benchmark. Labels are looked at for this alone."""
        known = 0 if self.model.ids_per_task else class_count(self.experience)
        return max(known, 1 + int(labels.max()))

    def _look_at_class_ids(self) -> None:
        """Before the first experience: learn from the benchmark whether class ids start anew in each."""
        if self.model.config.class_ids == "auto" and not self.model.memory.keys:
            self.model.ids_per_task = restarts_class_ids(self.experience)

    def _warn_of_merged_classes(self, labels: Tensor, tasks: Tensor) -> None:
        """Warn once where class ids of one task come again in another, which may be other classes."""
        if self.model.config.class_ids != "auto" or self.model.ids_per_task or self._warned:
            return
        for task in torch.unique(tasks).tolist():
            own = {int(label) for label in torch.unique(labels[tasks == task])}
            other = {key.label for t, keys in self.model.classes_of_task.items() if t != task for key in keys}
            if again := sorted(own & other):
                self._warned = True
                warnings.warn(
                    f"task {task} has class ids of earlier tasks ({', '.join(map(str, again[:5]))}): they are learned "
                    'as the same classes. Pass class_ids="per-task" if ids start anew in each task, else "shared"',
                    stacklevel=2,
                )
                return

    # Learning.

    def learn_batches(self, batches: Sequence[Any]) -> Tensor:
        """Learn the experience; its logits are those of the stored classes, without refinement.

        Its images are labelled, so there is nothing to refine on.
        """
        self._look_at_class_ids()
        images, labels, tasks = self._read(batches)
        self._warn_of_merged_classes(labels.cpu(), tasks)
        features = self.model.learn(images, labels, tasks, self._queries_of_this_task())
        self.model.experiences.add(experience_number(self.experience))
        self._trained_on = stream_length(self.experience)

        def answer(rows: Tensor, task: int) -> Tensor:
            keys = self.model.classes_of([task]) if self.head == "multi" else self.model.memory.keys
            found = self.model.stored_logits(features[rows.to(features.device)], keys)
            return self.model.by_class_id(found, keys, task, self._width(labels))

        return by_task(tasks, answer)

    def _queries_of_this_task(self) -> Tensor | None:
        """The unlabelled images of the current task's queries."""
        if not self.model.model.uses_queries_to_encode or self.model.encoding.settled:
            return None
        if self._query_stream is None:
            raise BadInputError(
                f"{type(self).__name__} encodes a task from its unlabelled query images too: "
                "pass query_stream=benchmark.test_stream"
            )
        number = experience_number(self.experience)
        if number >= len(self._query_stream):
            raise BadInputError(
                f"query_stream has {len(self._query_stream)} experiences, none for training experience {number}"
            )
        return self._images_of(self._query_stream[number])

    # Evaluation: whole query sets, nothing changes.

    @torch.no_grad()
    def eval(self, experiences: Any, **kwargs: Any) -> dict[str, Any]:
        """Evaluate experiences; see Avalanche's BaseTemplate.eval."""
        together = [experiences] if not isinstance(experiences, Iterable) else list(experiences)
        refines_together = self.head == "single" and self.scores.refines_together
        self._query_sets = self._learned_query_sets(together) if refines_together else {}
        try:
            metrics: dict[str, Any] = super().eval(together, **kwargs)
            return metrics
        finally:
            self._query_sets = {}

    def _learned_query_sets(self, experiences: Sequence[Any]) -> dict[int, QuerySet]:
        """The queries of the experiences learned so far, with their features at hand.

        By the experience's identity, since a training and a test experience may have the same number. Put in order,
        so that the order in which they are evaluated changes no digit.
        """
        known = {id(exp): exp for exp in experiences if experience_number(exp) in self.model.experiences}
        ordered = sorted(known.values(), key=lambda exp: (experience_number(exp), exp.origin_stream.name))
        sets = {}
        for exp in ordered:
            queries = QuerySet.of(self._images_of(exp), [])
            self.scores.features(queries)
            sets[id(exp)] = queries.without_images()
        return sets

    def eval_epoch(self, **kwargs: Any) -> None:
        """Classify the experience's queries as one set, then hand the answers out batch by batch."""
        batches = list(self.dataloader)
        if not batches:
            return
        images, labels, tasks = self._read(batches)
        queries = self._query_sets.get(id(self.experience))
        outputs = self._answers(images, tasks, self._width(labels), queries)
        for self.mbatch, output in with_parts(batches, outputs):
            self._unpack_minibatch()
            self._before_eval_iteration(**kwargs)
            self._before_eval_forward(**kwargs)
            self.mb_output = output
            self._after_eval_forward(**kwargs)
            self.loss = self.criterion()
            self._after_eval_iteration(**kwargs)

    def forward(self) -> Tensor:
        """Answer the current batch alone, for plugins; the loops above use whole query sets instead."""
        images, labels, tasks = self._read([self.mbatch])
        return self._answers(images, tasks, self._width(labels))

    def _answers(self, images: Tensor, tasks: Tensor, width: int, queries: QuerySet | None = None) -> Tensor:
        """What plugins see: logits over the temperature, by class id; zeros before anything is learned.

        Args:
            images: the whole query set.
            tasks: of every image.
            width: least number of columns.
            queries: the set among those that are refined together, if it is one of them.
        """
        if not self.model.memory.keys:
            return torch.zeros(len(images), width, device=self.device)
        if self.head == "single":
            queries = queries or QuerySet.of(images, torch.unique(tasks).tolist())
            keys = self.scores.competing(queries, "single")
            found = self.scores.logits(queries, "single", tuple(self._query_sets.values()))
            return by_task(
                tasks,
                lambda rows, task: self.model.by_class_id(found[rows.to(found.device)], keys, task, width),
            )

        def answer(rows: Tensor, task: int) -> Tensor:
            own = QuerySet.of(images if len(rows) == len(images) else images[rows], [task])
            keys = self.scores.competing(own, "multi")
            return self.model.by_class_id(self.scores.logits(own, "multi"), keys, task, width)

        return by_task(tasks, answer)


class SimpleCnapsStrategy(CnapsStrategy):
    """Simple CNAPS on a stream."""

    model_name = "simple"


class TransductiveCnapsStrategy(CnapsStrategy):
    """Transductive CNAPS on a stream: unlabelled queries take part in the encoding and in the classes."""

    model_name = "transductive"


class ProtoNetStrategy(CnapsStrategy):
    """Nearest class mean in Euclidean distance on the adapted features."""

    model_name = "protonet"


STRATEGIES: dict[ModelName, type[CnapsStrategy]] = {
    strategy.model_name: strategy
    for strategy in (SimpleCnapsStrategy, TransductiveCnapsStrategy, CnapsStrategy, ProtoNetStrategy)
}
