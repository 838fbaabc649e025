"""Classifiers on features as an Avalanche strategy, and as learners of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from cl_cnaps.continual.baselines.benchmark import avalanche_benchmark
from cl_cnaps.continual.baselines.closed_form import ClosedFormClassifier
from cl_cnaps.continual.baselines.closed_form_settings import ClosedFormSettings, ProbeSettings
from cl_cnaps.continual.baselines.features import FeatureMaker
from cl_cnaps.continual.baselines.inputs import FeatureFunction, StreamInputs
from cl_cnaps.continual.baselines.learner import BaselineLearner
from cl_cnaps.continual.baselines.linear_probe import ProbeClassifier
from cl_cnaps.continual.baselines.registry import BASELINES
from cl_cnaps.continual.baselines.settings import with_changes
from cl_cnaps.continual.one_pass import OnePassStrategy
from cl_cnaps.errors import BadInputError

FeatureSettings = ClosedFormSettings | ProbeSettings


class FeatureClassifier(Protocol):
    """Learns features task by task, and scores features for all classes learned."""

    def learn(self, features_ND: Tensor, columns_N: Tensor) -> None:
        """Learn one task."""

    def scores(self, features_ND: Tensor) -> Tensor:
        """Scores N x C of all columns up to the largest learned."""

    def memory_bytes(self) -> int:
        """What is carried from task to task."""


class FeatureModel(nn.Module):
    """Features and a classifier on them, as the module that Avalanche evaluates."""

    def __init__(self, classifier: FeatureClassifier, features: FeatureMaker, n_classes: int) -> None:
        super().__init__()
        self.classifier = classifier
        self.n_classes = n_classes
        self._make_features = features
        self._embed: FeatureFunction | None = None
        self._seen = torch.zeros(n_classes, dtype=torch.bool)
        self.eval()

    def train(self, mode: bool = True) -> FeatureModel:  # noqa: ARG002
        """Stay in inference mode: nothing here is trained by gradient steps."""
        return super().train(False)

    @torch.no_grad()
    def learn(self, inputs: Tensor, labels: Tensor) -> None:
        """Learn one experience; the first decides the features of all."""
        labels = labels.cpu()
        if len(labels) and int(labels.max()) >= self.n_classes:
            raise BadInputError(f"class id {int(labels.max())} needs more than num_classes={self.n_classes}")
        if self._embed is None:
            self._embed = self._make_features(inputs, labels)
        self.classifier.learn(self._embed(inputs), labels)
        self._seen[labels] = True

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Logits N x num_classes; classes not learned yet are far below all others, and finite."""
        if self._embed is None:
            return inputs.new_zeros(len(inputs), self.n_classes, dtype=torch.float32)
        found = self.classifier.scores(self._embed(inputs)).float()
        seen = self._seen[: found.shape[1]]
        low = found[:, seen].min(dim=1, keepdim=True).values - 100
        logits = low.repeat(1, self.n_classes)
        logits[:, : found.shape[1]][:, seen] = found[:, seen]
        return logits.to(inputs.device)


class FeatureStrategy(OnePassStrategy):
    """SimpleCIL, LDA, ridge, RanPAC, ACIL, KLDA, RanDumb, FSA-FiLM or the joint linear probe on an Avalanche stream."""

    def __init__(
        self,
        *,
        method: str,
        features: FeatureMaker,
        num_classes: int,
        seed: int = 0,
        train_mb_size: int = 64,
        eval_mb_size: int | None = None,
        device: str | torch.device = "cpu",
        plugins: Sequence[Any] | None = None,
        settings: dict[str, Any] | None = None,
        **template: Any,
    ) -> None:
        """Make a strategy.

        Args:
            method: a key of `BASELINES` that keeps statistics of features, such as ``ranpac``.
            features: from `cnaps_features` or `first_session_features`.
            num_classes: of the whole benchmark; class ids are below it.
            seed: decides random maps and held-out images.
            train_mb_size: images per batch handed to plugins while training.
            eval_mb_size: the same in evaluation.
            device: where to compute.
            plugins: Avalanche plugins.
            settings: fields of the baseline's settings to change.
            template: further keyword arguments of Avalanche's SupervisedTemplate, such as `evaluator`.
        """
        defaults = BASELINES[method].defaults if method in BASELINES else None
        if not isinstance(defaults, FeatureSettings):
            known = [key for key, info in BASELINES.items() if isinstance(info.defaults, FeatureSettings)]
            raise BadInputError(f"no classifier {method!r} on features; there are {', '.join(known)}")
        chosen = with_changes(method, defaults, settings or {})
        target = torch.device(device)
        super().__init__(
            model=FeatureModel(make_classifier(chosen, seed, target), features, num_classes),
            train_mb_size=train_mb_size,
            eval_mb_size=eval_mb_size,
            device=target,
            plugins=plugins,
            **template,
        )

    def learn_batches(self, batches: Sequence[Any]) -> Tensor:
        """Learn the experience as a whole."""
        inputs = torch.cat([batch[0] for batch in batches])
        self.features_model.learn(inputs, torch.cat([batch[1] for batch in batches]))
        return torch.cat([self.features_model(part) for part in torch.split(inputs, self.train_mb_size)])

    @property
    def features_model(self) -> FeatureModel:
        """What was learned so far."""
        assert isinstance(self.model, FeatureModel)
        return self.model


class FeatureLearner(BaselineLearner):
    """A classifier on features behind the learner's interface, trained through Avalanche."""

    def __init__(
        self, name: str, inputs: StreamInputs, settings: FeatureSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._settings = settings
        self._experiences = avalanche_benchmark(inputs).train_stream
        self.strategy = FeatureStrategy(
            method=name,
            features=lambda _inputs, _labels: lambda features: features,  # they are features already
            num_classes=len(inputs.class_ids),
            seed=seed,
            device=device,
            settings={field: getattr(settings, field) for field in settings.__dataclass_fields__},
            evaluator=None,
        )

    @property
    def classifier(self) -> FeatureClassifier:
        """What was learned so far."""
        return self.strategy.features_model.classifier

    @property
    def scores_are_logits(self) -> bool:
        """Those of LDA are, with classes of equal weight, and those of the probe."""
        return isinstance(self._settings, ProbeSettings) or self._settings.head.kind == "discriminant"

    def memory_bytes(self) -> int:
        """What the classifier keeps."""
        return self.classifier.memory_bytes()

    def _learn(self, step: int) -> None:
        self.strategy.train(self._experiences[step], eval_streams=[])

    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        return self.classifier.scores(queries)[:, classes_K]


def make_classifier(settings: FeatureSettings, seed: int, device: torch.device) -> FeatureClassifier:
    """The classifier of these settings, before its first task."""
    if isinstance(settings, ProbeSettings):
        return ProbeClassifier(settings, seed)
    return ClosedFormClassifier(settings, seed, device)
