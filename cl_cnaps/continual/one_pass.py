"""Avalanche without an optimizer: a strategy that learns each experience in one pass, and streams as benchmarks.

As Avalanche's StreamingLDA is. Every image counts once, in the loader's order, and plugins see the usual events.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import TaskAwareClassificationDataset
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from cl_cnaps.continual.batches import joined_images, normalisation_of, plain_loader
from cl_cnaps.continual.stream import Stream
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.loading import resolve_device

_NO_MEANING = {
    "train_epochs": "every image is learned once, in one pass",
    "optimizer": "nothing is trained by gradient steps",
}

_BY_GRADIENTS = "it works on gradients, and nothing here is trained by gradient steps"
_IMAGES_AGAIN = "it shows stored images again, which would be counted twice; class statistics need no replay"
_OWN_CLASSIFIER = "it needs a classifier or features of its own in the model"

REFUSED_PLUGINS: dict[str, str] = {
    **dict.fromkeys(
        (
            *("AGEMPlugin", "BiCPlugin", "CWRStarPlugin", "CoPEPlugin", "EWCPlugin", "GEMPlugin"),
            *("GSS_greedyPlugin", "LFLPlugin", "MASPlugin", "MIRPlugin", "RARPlugin", "RWalkPlugin"),
            "SynapticIntelligencePlugin",
        ),
        _BY_GRADIENTS,
    ),
    **dict.fromkeys(
        ("GDumbPlugin", "GenerativeReplayPlugin", "ReplayPlugin", "TrainGeneratorAfterExpPlugin"),
        _IMAGES_AGAIN,
    ),
    **dict.fromkeys(
        (
            *("CurrentDataFeCAMUpdate", "MemoryFeCAMUpdate", "FeCAMOracle", "FeatureDistillationPlugin"),
            *("CurrentDataNCMUpdate", "MemoryNCMUpdate", "NCMOracle"),
        ),
        _OWN_CLASSIFIER,
    ),
    "EarlyStoppingPlugin": "there is one pass, which cannot be stopped early",
    "FromScratchTrainingPlugin": "it forgets what was learned before each experience",
    "LRSchedulerPlugin": "there is no optimizer, and so no learning rate",
}
"""Avalanche's plugins that cannot work with statistics, and why."""

WITHOUT_EFFECT: dict[str, str] = {
    "LwFPlugin": "it adds to the loss, which plugins and loggers see, but nothing learns from a loss here"
}


class OnePassStrategy(SupervisedTemplate):  # type: ignore[misc]  # Avalanche has no types
    """Subclasses define how an experience is learned; Avalanche's loop, plugins and loggers do the rest."""

    model: Any
    """A module with a `normalisation`: that of the images which the benchmark gives, for the module to undo."""

    image_size: int | None = None
    """Side of images that have to be resized to be stacked; None: Avalanche's own collating."""

    def __init__(
        self,
        *,
        model: nn.Module,
        train_mb_size: int,
        eval_mb_size: int | None,
        device: str | torch.device,
        plugins: Sequence[Any] | None,
        **template: Any,
    ) -> None:
        """Make a strategy; `template` has `criterion`, `evaluator`, `eval_every` and `peval_mode` of Avalanche."""
        for word in template:
            if word in _NO_MEANING:
                raise BadInputError(f"{type(self).__name__}: {_NO_MEANING[word]}; leave {word} out")
        for plugin in plugins or ():
            self._check_plugin(plugin)
        super().__init__(
            model=model,
            optimizer=None,
            criterion=template.pop("criterion", None) or nn.CrossEntropyLoss(),
            train_mb_size=train_mb_size,
            train_epochs=1,
            eval_mb_size=eval_mb_size or train_mb_size,
            device=resolve_device(str(device)),
            plugins=list(plugins or []),
            **template,
        )

    def _check_plugin(self, plugin: Any) -> None:
        """Refuse a plugin that cannot work here, and warn of one that changes nothing."""
        kinds = [kind.__name__ for kind in type(plugin).__mro__ if kind.__module__.startswith("avalanche.")]
        for kind in kinds:
            if kind in REFUSED_PLUGINS:
                raise BadInputError(f"{type(self).__name__} cannot use {kind}: {REFUSED_PLUGINS[kind]}")
            if kind in WITHOUT_EFFECT:
                warnings.warn(f"{kind}: {WITHOUT_EFFECT[kind]}", stacklevel=5)

    @abstractmethod
    def learn_batches(self, batches: Sequence[Any]) -> Tensor:
        """Learn the experience that these batches make up; return the logits of its images for plugins."""

    def make_optimizer(self, **_: Any) -> None:
        """Do nothing: nothing is optimised."""

    def model_adaptation(self, model: nn.Module | None = None) -> nn.Module:
        """Return the model as it is: Avalanche's own adaptation would let evaluation data grow it."""
        return (self.model if model is None else model).to(self.device)

    def check_model_and_optimizer(self, **_: Any) -> None:
        """Put the model on its device; there is no optimizer to reset."""
        self.model = self.model_adaptation()

    def make_train_dataloader(self, **loader: Any) -> None:
        """Give every image once, in order: Avalanche's balanced loader repeats images of smaller tasks."""
        self._load(self.train_mb_size, loader)

    def make_eval_dataloader(self, **loader: Any) -> None:
        """Give every image once, in order."""
        self._load(self.eval_mb_size, loader)

    def _load(self, batch_size: int, loader: dict[str, Any]) -> None:
        self.dataloader = plain_loader(self.adapted_dataset, batch_size, loader, self.image_size)
        self.model.normalisation = normalisation_of(self.adapted_dataset)

    def joined(self, batches: Sequence[Any]) -> Tensor:
        """Return the images of the current experience as uint8 N x 3 x H x W; features as they are."""
        return joined_images(batches, self.model.normalisation, self.image_size)

    def training_epoch(self, **kwargs: Any) -> None:
        """Learn the experience as a whole, then show plugins its batches with the model's answers."""
        batches = list(self.dataloader)
        if not batches:
            raise BadInputError(
                f"experience {self.experience.current_experience} has no images to learn from"
            )
        outputs = self.learn_batches(batches)
        for self.mbatch, output in with_parts(batches, outputs):
            self._unpack_minibatch()
            self._before_training_iteration(**kwargs)
            self.loss = self._make_empty_loss()
            self._before_forward(**kwargs)
            self.mb_output = output
            self._after_forward(**kwargs)
            self.loss = self.loss + self.criterion()
            self._before_backward(**kwargs)
            self._after_backward(**kwargs)
            self._before_update(**kwargs)
            self._after_update(**kwargs)
            self._after_training_iteration(**kwargs)


def with_parts(batches: Sequence[Any], outputs: Tensor) -> Iterable[tuple[Any, Tensor]]:
    """Pair each batch with its rows of the outputs."""
    return zip(batches, torch.split(outputs, [len(batch[1]) for batch in batches]), strict=True)


def avalanche_benchmark(stream: Stream, parts: Sequence[Sequence[Tensor]] | None = None) -> Any:
    """Return an Avalanche scenario with `train_stream` (support images) and `test_stream` (queries).

    Args:
        stream: task t gets the task label t.
        parts: for every task, the images of each of its training experiences; all of them in one if not given.
    """
    parts = parts or [[torch.arange(len(task.support_labels))] for task in stream.tasks]
    train = [
        _dataset(task.support_images[part], task.support_labels[part], t)
        for t, task in enumerate(stream.tasks)
        for part in parts[t]
    ]
    test = [_dataset(task.query_images, task.query_labels, t) for t, task in enumerate(stream.tasks)]
    return _benchmark(train=train, test=test)


def training_experiences(inputs: Sequence[Tensor], labels: Sequence[Tensor]) -> Any:
    """One training experience per task, of whatever a baseline reads.

    There is no test stream, so no strategy can come near a query image. All task labels are 0: classes have their
    columns in one output layer, and heads are chosen when predicting.
    """
    return _benchmark(train=[_dataset(*task, 0) for task in zip(inputs, labels, strict=True)]).train_stream


def _benchmark(**datasets: list[TaskAwareClassificationDataset]) -> Any:
    return with_classes_timeline(with_task_labels(benchmark_from_datasets(**datasets)))


def _dataset(inputs: Tensor, labels: Tensor, task: int) -> TaskAwareClassificationDataset:
    return TaskAwareClassificationDataset(
        [TensorDataset(inputs, labels)],
        data_attributes=[DataAttribute(labels.tolist(), "targets"), TaskLabels([task] * len(labels))],
    )
