"""What the baselines without gradients share: one pass of Avalanche's loop per task, over features."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import nn


class ClassifierOnFeatures(nn.Module):
    """A feature extractor that is already done, and a classifier, by the names Avalanche's plugins look for."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.feature_extractor = nn.Identity()
        self.eval_classifier = classifier


class StatisticsStrategy(SupervisedTemplate):  # type: ignore[misc, unused-ignore]
    """Avalanche's loop with no epochs and no optimizer: plugins do the learning at the end of an experience."""

    def __init__(self, *, classifier: nn.Module, device: torch.device, plugins: list[Any]) -> None:
        super().__init__(
            model=ClassifierOnFeatures(classifier),
            optimizer=None,
            train_mb_size=1024,
            train_epochs=0,
            device=device,
            plugins=plugins,
            evaluator=None,
        )

    def make_optimizer(self, **kwargs: Any) -> None:
        """There is nothing to optimize."""
