"""Nearest class mean, on features or on raw pixels."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.models import NCMClassifier
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.baselines.benchmark import avalanche_benchmark
from cl_cnaps.continual.baselines.inputs import StreamInputs
from cl_cnaps.continual.baselines.learner import BaselineLearner
from cl_cnaps.continual.baselines.settings import NcmSettings
from cl_cnaps.continual.baselines.statistics_strategy import StatisticsStrategy


class CountedMeans(SupervisedPlugin):  # type: ignore[misc, unused-ignore]
    """Class means over all images seen. Avalanche's own plugin averages a class seen again without its counts."""

    def __init__(self, settings: NcmSettings) -> None:
        super().__init__()
        self.settings = settings
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}

    def vectors(self, inputs: Tensor) -> Tensor:
        """N x D vectors whose class means are compared; bytes are scaled to [0, 1]."""
        scaled = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs
        flat_ND = scaled.flatten(start_dim=1)
        return F.normalize(flat_ND, dim=1) if self.settings.normalise else flat_ND

    def after_training_exp(self, strategy: Any, **_kwargs: Any) -> None:
        """Add the experience's images and renew the classifier's means."""
        for inputs, labels, _ in torch.utils.data.DataLoader(
            strategy.experience.dataset, strategy.train_mb_size
        ):
            vectors = self.vectors(inputs.to(strategy.device))
            for label in labels.unique().tolist():
                mine = vectors[labels.to(vectors.device) == label]
                self.sums[label] = self.sums.get(label, 0) + mine.sum(dim=0)
                self.counts[label] = self.counts.get(label, 0) + len(mine)
        means = {label: total / self.counts[label] for label, total in self.sums.items()}
        if self.settings.normalise:
            means = {label: F.normalize(mean, dim=0) for label, mean in means.items()}
        strategy.model.eval_classifier.replace_class_means_dict(means)


class NearestMeanLearner(BaselineLearner):
    """Avalanche's NCM classifier behind the learner's interface."""

    def __init__(
        self, name: str, inputs: StreamInputs, settings: NcmSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._experiences = avalanche_benchmark(inputs).train_stream
        self._means = CountedMeans(settings)
        # Vectors come normalised from the plugin, where a zero vector is not divided by its length.
        self.classifier = NCMClassifier(normalize=False)
        self._strategy = StatisticsStrategy(classifier=self.classifier, device=device, plugins=[self._means])

    def memory_bytes(self) -> int:
        """One sum and one count per class seen."""
        return sum(total.numel() * total.element_size() + 8 for total in self._means.sums.values())

    def _learn(self, step: int) -> None:
        self._strategy.train(self._experiences[step], eval_streams=[])
        self.classifier.eval()

    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self._means.vectors(queries))
        return scores[:, classes_K]
