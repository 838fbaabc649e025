"""CNAPS as Avalanche strategies: `strategy.train(experience)`, `strategy.eval(stream)`, any plugin or logger.

These are SupervisedTemplates without an optimizer, as Avalanche's StreamingLDA is. One pass over an experience, in
the loader's order and without oversampling, because statistics must count every image once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn
from torch.utils.data import DataLoader

from cl_cnaps.continual.continual_cnaps import ClassIds, ContinualCnaps, ContinualConfig
from cl_cnaps.continual.encodings import EncodingName
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.continual.stream import Head
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import CnapsModel, ModelName
from cl_cnaps.models.loading import load_model

QueryScope = Literal["task", "stream"]


class CnapsStrategy(SupervisedTemplate):  # type: ignore[misc]  # Avalanche has no types
    """Learns class statistics under a moving, first or averaging task encoding; predicts with one or many heads.

    The model must be given images in [0, 1] (as `ToTensor` makes them) or uint8, grey or RGB, of any size: it
    resizes and normalises them itself.
    """

    model_name: ClassVar[ModelName]

    def __init__(
        self,
        *,
        model: CnapsModel | None = None,
        encoding: EncodingName = "first",
        head: Head = "single",
        class_ids: ClassIds = "shared",
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
            query_scope: transductive, single head: refine on each experience alone, or on all that are evaluated
                together. The multi head always refines on the experience, whose classes are the only candidates.
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
        if query_scope not in ("task", "stream"):
            raise BadInputError(f"unknown query scope {query_scope!r}; there are task and stream")
        chosen = model if model is not None else load_model(self.model_name).model
        if chosen.name != self.model_name:
            raise BadInputError(f"{type(self).__name__} needs a {self.model_name} model, got {chosen.name}")
        super().__init__(
            model=ContinualCnaps(chosen.to(device), ContinualConfig(encoding, class_ids)),
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
        self.query_scope = query_scope
        self._query_stream = query_stream
        self._evaluated: dict[int, Tensor] = {}

    @property
    def learner(self) -> ContinualCnaps:
        """What was learned so far."""
        assert isinstance(self.model, ContinualCnaps)
        return self.model

    # Training: one pass that counts every image once.

    def make_optimizer(self, **_: Any) -> None:
        """Nothing is optimised."""

    def model_adaptation(self, model: nn.Module | None = None) -> nn.Module:
        """The model as it is: Avalanche's own adaptation would let evaluation data grow it."""
        return (self.model if model is None else model).to(self.device)

    def check_model_and_optimizer(self, **_: Any) -> None:
        """Put the model on its device; there is no optimizer to reset."""
        self.model = self.model_adaptation()

    def make_train_dataloader(self, **loader: Any) -> None:
        """Every image once, in order: Avalanche's balanced loader repeats images of smaller tasks."""
        self.dataloader = _plain_loader(self.adapted_dataset, self.train_mb_size, loader)

    def make_eval_dataloader(self, **loader: Any) -> None:
        """Every image once, in order."""
        self.dataloader = _plain_loader(self.adapted_dataset, self.eval_mb_size, loader)

    def training_epoch(self, **kwargs: Any) -> None:
        """Learn the experience as a whole, then show plugins its batches with the model's answers."""
        batches = list(self.dataloader)
        images = torch.cat([as_images(batch[0]) for batch in batches])
        labels = torch.cat([batch[1] for batch in batches])
        task = _one_task(torch.cat([batch[-1] for batch in batches]))
        features = self.learner.learn(images, labels, task, self._queries_of_this_task())
        logits = self._logits(features, task)
        position = 0
        for self.mbatch in batches:
            self._unpack_minibatch()
            self._before_training_iteration(**kwargs)
            self.loss = self._make_empty_loss()
            self._before_forward(**kwargs)
            self.mb_output = logits[position : position + len(self.mb_y)]
            position += len(self.mb_y)
            self._after_forward(**kwargs)
            self.loss = self.loss + self.criterion()
            self._before_backward(**kwargs)
            self._after_backward(**kwargs)
            self._before_update(**kwargs)
            self._after_update(**kwargs)
            self._after_training_iteration(**kwargs)

    def _queries_of_this_task(self) -> Tensor | None:
        """The unlabelled images of the current task's queries."""
        if not self.learner.model.uses_queries_to_encode or self.learner.encoding.settled:
            return None
        if self._query_stream is None:
            raise BadInputError(
                f"{type(self).__name__} encodes a task from its unlabelled query images too: "
                "pass query_stream=benchmark.test_stream"
            )
        experience = self._query_stream[self.experience.current_experience]
        return experience_images(experience, self.eval_mb_size)

    # Evaluation: whole query sets, nothing changes.

    @torch.no_grad()
    def eval(self, experiences: Any, **kwargs: Any) -> dict[str, Any]:
        """Evaluate experiences; see Avalanche's BaseTemplate.eval."""
        together = [experiences] if not isinstance(experiences, Iterable) else list(experiences)
        self._evaluated = self._stream_logits(together) if self._refines_on_the_stream else {}
        try:
            metrics: dict[str, Any] = super().eval(together, **kwargs)
            return metrics
        finally:
            self._evaluated = {}

    @property
    def _refines_on_the_stream(self) -> bool:
        return self.learner.transductive and self.head == "single" and self.query_scope == "stream"

    def eval_epoch(self, **kwargs: Any) -> None:
        """Classify the experience's queries as one set, then hand the answers out batch by batch."""
        batches = list(self.dataloader)
        if self.experience.current_experience in self._evaluated:
            logits = self._evaluated[self.experience.current_experience]
        else:
            features = self.learner.embed(torch.cat([as_images(batch[0]) for batch in batches]))
            logits = self._logits(features, _one_task(torch.cat([batch[-1] for batch in batches])))
        position = 0
        for self.mbatch in batches:
            self._unpack_minibatch()
            self._before_eval_iteration(**kwargs)
            self._before_eval_forward(**kwargs)
            self.mb_output = logits[position : position + len(self.mb_y)]
            position += len(self.mb_y)
            self._after_eval_forward(**kwargs)
            self.loss = self.criterion()
            self._after_eval_iteration(**kwargs)

    def forward(self) -> Tensor:
        """Logits of the current batch alone; the loops above use whole query sets instead."""
        return self._logits(self.learner.embed(as_images(self.mb_x)), _one_task(self.mb_task_id))

    def criterion(self) -> Tensor:
        """The loss, with columns added for labels of the future, which are answered with a low score."""
        missing = int(self.mb_y.max()) + 1 - self.mb_output.shape[1]
        output = self.mb_output
        if missing > 0:
            output = torch.cat([output, _low(output).expand(-1, missing)], dim=1)
        loss: Tensor = self._criterion(output, self.mb_y)
        return loss

    def _stream_logits(self, experiences: Sequence[Any]) -> dict[int, Tensor]:
        """Single-head logits of all experiences, refined on their queries together, in order of learning."""
        known = set(self.learner.classes_of_task)
        tasks = {exp.current_experience: exp for exp in experiences if set(exp.task_labels) <= known}
        ordered = [tasks[index] for index in sorted(tasks)]
        if not ordered:
            return {}
        features = [self.learner.embed(experience_images(exp, self.eval_mb_size)) for exp in ordered]
        keys = self.learner.memory.keys
        parts = torch.split(self.learner.logits(torch.cat(features), keys), [len(part) for part in features])
        return {
            exp.current_experience: self._by_column(logits, keys, exp.task_label)
            for exp, logits in zip(ordered, parts, strict=True)
        }

    def _logits(self, features: Tensor, task: int) -> Tensor:
        keys = self.learner.memory.keys
        if self.head == "multi":
            keys = self.learner.classes_of_task.get(task, ())
        if not keys:
            raise BadInputError(f"the multi head was asked about task {task}, which was never learned")
        return self._by_column(self.learner.logits(features, keys), keys, task)

    def _by_column(self, logits_QK: Tensor, keys: Sequence[ClassKey], task: int) -> Tensor:
        """Logits with class id c in column c; unseen ids get a low score.

        With per-task ids a class of another task has no column of its own that would be right to choose: it comes
        after all ids, where choosing it counts as the mistake it is.
        """
        width = 1 + max(key.label for key in self.learner.memory.keys)
        foreign = [key for key in keys if key.task not in (-1, task)]
        column = {key: width + i for i, key in enumerate(foreign)}
        column |= {key: key.label for key in keys if key.task in (-1, task)}
        full = _low(logits_QK).repeat(1, width + len(foreign))
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


def as_images(batch: Tensor) -> Tensor:
    """A batch as uint8 N x 3 x H x W, from uint8 or from floats in [0, 1], grey or RGB."""
    if batch.ndim == 3:
        batch = batch[:, None]
    if batch.ndim != 4 or batch.shape[1] not in (1, 3):
        raise BadInputError(f"expected images N x 3 x H x W (or one channel), got shape {tuple(batch.shape)}")
    if batch.is_floating_point():
        low, high = float(batch.min()), float(batch.max())
        if low < 0 or high > 1:
            raise BadInputError(
                f"expected images in [0, 1], found values from {low:.2f} to {high:.2f}: take the normalisation out of "
                "the benchmark's transforms (the model does its own)"
            )
        batch = (batch * 255).round().to(torch.uint8)
    return batch.expand(-1, 3, -1, -1)


def experience_images(experience: Any, batch_size: int) -> Tensor:
    """All images of an experience in its evaluation form; labels are not looked at."""
    loader = _plain_loader(experience.dataset.eval(), batch_size, {})
    return torch.cat([as_images(batch[0]) for batch in loader])


def _plain_loader(dataset: Any, batch_size: int, options: dict[str, Any]) -> DataLoader[Any]:
    keep = ("num_workers", "pin_memory", "persistent_workers")
    chosen = {key: options[key] for key in keep if options.get(key) is not None}
    collate: Callable[..., Any] | None = getattr(dataset, "collate_fn", None)
    return DataLoader(dataset, batch_size=batch_size, shuffle=False, collate_fn=collate, **chosen)


def _one_task(task_labels: Tensor) -> int:
    tasks = torch.unique(task_labels).tolist()
    if len(tasks) != 1:
        raise BadInputError(f"an experience must have one task label, this one has {tasks}")
    return int(tasks[0])


def _low(logits_QK: Tensor) -> Tensor:
    """A score below every real one, per query, so that it depends on nothing else in the batch; Q x 1."""
    return logits_QK.min(dim=1, keepdim=True).values - 100
