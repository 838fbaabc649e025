"""Baselines that train a network, on Avalanche's training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from avalanche.training.supervised import JointTraining, Naive
from torch import Tensor, nn

from cl_cnaps.continual.baselines.benchmark import avalanche_benchmark
from cl_cnaps.continual.baselines.inputs import StreamInputs
from cl_cnaps.continual.baselines.learner import BaselineLearner
from cl_cnaps.continual.baselines.loss import CompetingCrossEntropy, FiniteLoss
from cl_cnaps.continual.baselines.methods import Method, method
from cl_cnaps.continual.baselines.randomness import own_randomness
from cl_cnaps.continual.baselines.settings import NetworkSettings, VclSettings
from cl_cnaps.continual.baselines.variational import MeanField
from cl_cnaps.errors import ClCnapsError


class NetworkLearner(BaselineLearner):
    """One network with one output layer for all classes of the stream, trained task after task."""

    def __init__(
        self,
        name: str,
        inputs: StreamInputs,
        make_network: Callable[[], nn.Module],
        settings: NetworkSettings,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self.settings = settings
        self._make_network = make_network
        self._experiences = avalanche_benchmark(inputs).train_stream
        self._loss = CompetingCrossEntropy()
        self._guard = FiniteLoss(name, tuple(task.name for task in inputs.stream.tasks))
        self.method: Method = method(name, settings)
        with own_randomness(seed, -1, device):
            self.model = self._new_model()
        self._strategy: Any = None

    @property
    def scores_are_logits(self) -> bool:
        """They are: of VCL the logarithms of averaged probabilities."""
        return True

    def memory_bytes(self) -> int:
        """The model's parameters and what the method keeps beside them."""
        kept = [*self.model.parameters(), *self.method.carried()]
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def _learn(self, step: int) -> None:
        self._guard.step = step
        self._loss.compete(self._competing(step).to(self.device))
        self._train(step)
        self.model.eval()
        if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
            task = self.inputs.stream.tasks[step].name
            raise ClCnapsError(f"{self.name}: weights are not finite after step {step} (task {task!r})")

    def _train(self, step: int) -> None:
        if self._strategy is None:
            self._strategy = self._new_strategy(Naive)
        self._strategy.train(self._experiences[step], eval_streams=[], reset_optimizer_state=True)

    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        if isinstance(self.model, MeanField) and isinstance(self.settings, VclSettings):
            found = self.model.predictive(queries, classes_K, self.settings.samples, self.seed)
            return found.clamp(min=torch.finfo(found.dtype).tiny).log()
        logits: Tensor = self.model(queries)
        return logits[:, classes_K]

    def _competing(self, step: int) -> Tensor:
        if self.settings.competing == "seen" or self.method.rehearses:
            return self._seen(step + 1)
        return self.inputs.classes[step]

    def _new_model(self) -> nn.Module:
        return self.method.wrap(self._make_network()).to(self.device)

    def _new_strategy(self, kind: Callable[..., Any]) -> Any:
        rate = self.settings.learning_rate
        groups: list[dict[str, Any]] = [{"params": list(self.model.parameters()), "lr": rate}]
        if isinstance(self.model, MeanField) and isinstance(self.settings, VclSettings):
            groups[0]["params"] = list(self.model.means.parameters())
            faster = rate * self.settings.deviation_rate
            groups.append({"params": list(self.model.log_deviations), "lr": faster})
        return kind(
            model=self.model,
            optimizer=torch.optim.Adam(groups),
            criterion=self._loss,
            train_mb_size=self.settings.batch_size,
            train_epochs=self.settings.epochs,
            device=self.device,
            plugins=[*self.method.plugins, self._guard],
            evaluator=None,
        )


class JointLearner(NetworkLearner):
    """Trains a new network at every step on the images of all tasks so far: what no forgetting looks like."""

    def memory_bytes(self) -> int:
        """The network, and every image learned from with its label."""
        kept = (*self.inputs.support[: self.learned], *self.inputs.labels[: self.learned])
        return super().memory_bytes() + sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def _train(self, step: int) -> None:
        self.model = self._new_model()
        strategy = self._new_strategy(JointTraining)
        strategy.train(self._experiences[: step + 1], eval_streams=[])
