"""Baselines that train a network, on Avalanche's training loop: the networks, the loss and the learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from avalanche.training.plugins import SupervisedPlugin
from avalanche.training.supervised import JointTraining, Naive
from torch import Tensor, nn
from torch.nn import functional as F

from cl_cnaps.continual.baselines.inputs import COLOUR_PIXELS, GREY_PIXELS, StreamInputs
from cl_cnaps.continual.baselines.learner import BaselineLearner, own_randomness
from cl_cnaps.continual.baselines.methods import MeanField, Method, method
from cl_cnaps.continual.baselines.settings import NetworkSettings, VclSettings
from cl_cnaps.continual.one_pass import training_experiences
from cl_cnaps.errors import ClCnapsError


class FeatureHead(nn.Module):
    """One hidden layer on frozen features.

    Not a linear layer: there the classes of different tasks share no weight, so with a loss over the classes
    present there is nothing to forget and every regulariser is bit-equal to naive fine-tuning. Features are
    standardised per image, so that the learning rate suits any backbone.
    """

    def __init__(self, n_features: int, n_classes: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_features, hidden)
        self.output = nn.Linear(hidden, n_classes)

    def forward(self, features_ND: Tensor) -> Tensor:
        """Logits, N x classes."""
        standardised = F.layer_norm(features_ND, features_ND.shape[1:])
        logits: Tensor = self.output(torch.relu(self.hidden(standardised)))
        return logits


class Mlp(nn.Module):
    """Two hidden layers on 28-pixel grey-scale images: the network of the split-MNIST literature (VCL's, with 256)."""

    def __init__(self, n_classes: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(GREY_PIXELS * GREY_PIXELS, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits, N x classes, of uint8 images N x 1 x 28 x 28."""
        logits: Tensor = self.layers(images.float() / 255)
        return logits


class Cnn(nn.Module):
    """Three times [3x3 convolution, ReLU, max-pool] and a hidden layer, on 32-pixel colour images.

    With channels last, in which a training step takes two thirds of the time on a CPU; the same to rounding.
    """

    def __init__(self, n_classes: int, hidden: int) -> None:
        super().__init__()
        side = COLOUR_PIXELS // 8
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * side * side, hidden),
            nn.ReLU(),
            nn.Linear(hidden, n_classes),
        ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Logits, N x classes, of uint8 images N x 3 x 32 x 32."""
        scaled = images.float() / 127.5 - 1
        logits: Tensor = self.layers(scaled.contiguous(memory_format=torch.channels_last))
        return logits


class CompetingCrossEntropy(nn.Module):
    """Cross-entropy over some columns of the output layer only; the others get no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self._classes = torch.empty(0, dtype=torch.long)

    def compete(self, classes: Tensor) -> None:
        """From now on these columns (ascending) compete."""
        self._classes = classes

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean loss; `targets` are columns of the whole output layer."""
        return F.cross_entropy(logits[:, self._classes], torch.searchsorted(self._classes, targets))


class FiniteLoss(SupervisedPlugin):  # type: ignore[misc, unused-ignore]
    """Stops training as soon as the loss is NaN or infinite. Goes last, after every plugin that adds to the loss."""

    def __init__(self, method: str, task_names: tuple[str, ...]) -> None:
        super().__init__()
        self.method = method
        self.task_names = task_names
        self.step = 0

    def before_backward(self, strategy: Any, **_kwargs: Any) -> None:
        """Look at the complete loss of the mini-batch."""
        if not bool(torch.isfinite(strategy.loss)):
            raise ClCnapsError(
                f"{self.method}: the loss is {strategy.loss.item():g} at step {self.step}"
                f" (task {self.task_names[self.step]!r}), iteration {strategy.clock.train_exp_iterations}."
                " A smaller learning_rate or strength mends it."
            )


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
        self._experiences = training_experiences(inputs.support, inputs.labels)
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


def make_network(inputs: StreamInputs, features: bool, grey: bool, hidden: int) -> Callable[[], nn.Module]:
    """Return what makes a new network for these inputs: features, or grey or colour images."""
    n_classes = len(inputs.class_ids)
    if features:
        n_features = inputs.support[0].shape[1]
        return lambda: FeatureHead(n_features, n_classes, hidden)
    return lambda: Mlp(n_classes, hidden) if grey else Cnn(n_classes, hidden)
