"""Streaming linear discriminant analysis: Avalanche's strategy, on features."""

from __future__ import annotations

import torch
from avalanche.training.supervised import StreamingLDA
from torch import Tensor, nn

from cl_cnaps.continual.baselines.benchmark import avalanche_benchmark
from cl_cnaps.continual.baselines.discriminant import oas_shrinkage
from cl_cnaps.continual.baselines.inputs import StreamInputs
from cl_cnaps.continual.baselines.learner import BaselineLearner
from cl_cnaps.continual.baselines.moments import solve_positive
from cl_cnaps.continual.baselines.settings import SldaSettings


class StreamingLdaLearner(BaselineLearner):
    """Avalanche's StreamingLDA behind the learner's interface."""

    def __init__(
        self, name: str, inputs: StreamInputs, _settings: SldaSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._experiences = avalanche_benchmark(inputs).train_stream
        self.strategy = StreamingLDA(
            slda_model=nn.Identity(),
            criterion=nn.CrossEntropyLoss(),
            input_size=inputs.support[0].shape[1],
            num_classes=len(inputs.class_ids),
            # One batch per experience: the loop scores each batch before learning it, which would
            # otherwise mean one more inverse per batch.
            train_mb_size=max(len(support) for support in inputs.support),
            device=device,
            evaluator=None,
        )

    @property
    def scores_are_logits(self) -> bool:
        """They are, with classes of equal weight."""
        return True

    def memory_bytes(self) -> int:
        """Class means, counts and the covariance."""
        kept = (self.strategy.muK, self.strategy.cK, self.strategy.Sigma)
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def _learn(self, step: int) -> None:
        strategy = self.strategy
        # The strategy inverts the covariance whenever it has seen images since the last inverse. Its scores while
        # training are not used, so it is told that its inverse is fresh, and the real one is made once, here:
        # by Cholesky in float64, which takes a tenth of the time of its pseudo-inverse, and never when predicting.
        strategy.prev_num_updates = strategy.num_updates
        strategy.train(self._experiences[step], eval_streams=[])
        covariance = strategy.Sigma.double()
        trace, width = float(covariance.diagonal().sum()), strategy.input_size
        weight = oas_shrinkage(trace, float(covariance.square().sum()), int(strategy.cK.sum()), width)
        identity = torch.eye(width, dtype=torch.float64, device=self.device)
        # Without variance, any multiple of the identity gives the nearest mean.
        ridge = weight * trace / width if trace > 0 else 1.0
        strategy.Lambda = solve_positive((1 - weight) * covariance, ridge, identity).float()
        strategy.prev_num_updates = strategy.num_updates

    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        scores: Tensor = self.strategy.predict(queries)
        return scores[:, classes_K]
