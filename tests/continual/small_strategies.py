"""Strategies on small models, and a plugin that keeps what they answer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from models.small import small_model
from torch import Tensor

from cl_cnaps.continual.evaluator import Evaluator
from cl_cnaps.continual.one_pass import OnePassStrategy
from cl_cnaps.continual.strategies import STRATEGIES, CnapsStrategy
from cl_cnaps.models.cnaps import ModelName


class Answers:
    """An Avalanche plugin that keeps what the strategy answered in evaluation, by experience."""

    supports_distributed = True

    def __init__(self) -> None:
        self._kept: defaultdict[tuple[str, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        self.losses: list[float] = []

    def after_eval_iteration(self, strategy: Any, *_: Any, **__: Any) -> None:
        experience = strategy.experience
        place = (experience.origin_stream.name, experience.current_experience)
        self._kept[place].append((strategy.mb_output.clone(), strategy.mb_y.clone()))
        self.losses.append(float(strategy.loss))

    def clear(self) -> None:
        self._kept.clear()

    def outputs(self, number: int, stream: str = "test") -> Tensor:
        return torch.cat([output for output, _ in self._kept[stream, number]])

    def accuracy(self, number: int, stream: str = "test") -> float:
        labels = torch.cat([label for _, label in self._kept[stream, number]])
        return float((self.outputs(number, stream).argmax(dim=1) == labels).double().mean())


def make(name: ModelName = "simple", adaptation: str = "none", **options: Any) -> CnapsStrategy:
    """A strategy on the small model, silent unless an evaluator is given."""
    options.setdefault("evaluator", None)
    return STRATEGIES[name](model=small_model(name, adaptation=adaptation), **options)


def evaluated(strategy: OnePassStrategy, experiences: Any, batch_size: int = 4) -> Answers:
    """What the strategy answers about these experiences, with nothing at hand from before."""
    answers = Answers()
    if isinstance(strategy, CnapsStrategy):
        strategy.scores = Evaluator(strategy.model, strategy.scores.scope)
    strategy.plugins.append(answers)
    strategy.eval_mb_size = batch_size
    strategy.eval(experiences)
    strategy.plugins.remove(answers)
    return answers
