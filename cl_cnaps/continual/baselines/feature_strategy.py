"""Classifiers on features as an Avalanche strategy and as learners of a stream, and the features that they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_cnaps.continual.baselines.closed_form import ClosedFormClassifier, ProbeClassifier
from cl_cnaps.continual.baselines.inputs import FeatureFunction, StreamInputs
from cl_cnaps.continual.baselines.learner import PerClassLearner
from cl_cnaps.continual.baselines.registry import BASELINES, OWN
from cl_cnaps.continual.baselines.settings import (
    ClosedFormSettings,
    FirstSessionSettings,
    OwnSettings,
    ProbeSettings,
    with_changes,
)
from cl_cnaps.continual.batches import PLAIN, as_images
from cl_cnaps.continual.one_pass import OnePassStrategy, training_experiences
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.features.kept import FeatureStore, embed_or_find
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.film import Film
from cl_cnaps.models.loading import LoadedModel, model_of, resolve_device

FeatureMaker = Callable[[Tensor, Tensor], FeatureFunction]
"""Images and labels of the first task to the function that embeds the images of all tasks."""


@dataclass(frozen=True)
class ModelFeatures:
    """The features of a model under the FiLM parameters that the first task gives; calling it makes the function."""

    model: CnapsModel
    film: Callable[[Tensor, Tensor], Film]
    kept: FeatureStore | None

    @property
    def image_size(self) -> int:
        """Side of the images that the model reads."""
        return self.model.backbone.info.image_size

    def __call__(self, images: Tensor, labels: Tensor) -> FeatureFunction:
        """Return the function that embeds the images of all tasks."""
        network = self.model.fold(self.film(images, labels))
        embed = partial(embed_or_find, self.model, network=network, kept=self.kept)
        return lambda images: embed(as_images(images))


def cnaps_features(model: LoadedModel | CnapsModel, kept: FeatureStore | None = None) -> ModelFeatures:
    """Features as CNAPS has them under the encoding `first`; frozen ones of a model without adaptation."""
    chosen = model_of(model)
    return ModelFeatures(chosen, partial(_first_task_film, chosen), kept)


def first_session_features(
    model: LoadedModel | CnapsModel,
    settings: FirstSessionSettings,
    seed: int,
    kept: FeatureStore | None = None,
) -> ModelFeatures:
    """Features of FSA-FiLM (Panos et al. 2023): FiLM and a linear head learn the first task by gradient steps.

    FiLM starts where CNAPS would have it: at the identity for a model without adaptation.
    """
    chosen = model_of(model)

    def film(images: Tensor, labels: Tensor) -> Film:
        start = _first_task_film(chosen, images, labels)
        return tune_film(chosen, start, images, labels, settings, seed)

    return ModelFeatures(chosen, film, kept)


def tune_film(
    model: CnapsModel, start: Film, images: Tensor, labels: Tensor, settings: FirstSessionSettings, seed: int
) -> Film:
    """Return FiLM parameters after Adam steps on the cross-entropy of a linear head; the model stays as it is."""
    film = Film(
        tuple(part.detach().clone().requires_grad_() for part in start.gammas),
        tuple(part.detach().clone().requires_grad_() for part in start.betas),
    )
    classes, columns = torch.unique(labels.cpu(), return_inverse=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = nn.Linear(model.backbone.info.width, len(classes)).to(model.device, model.dtype)
    optimizer = torch.optim.Adam([*film.gammas, *film.betas, *head.parameters()], settings.learning_rate)
    order = torch.empty(0, dtype=torch.int64)
    size = min(settings.batch_size, len(images))
    for step in range(settings.steps):
        if len(order) < size:
            order = torch.cat([order, torch.randperm(len(images), generator=generator)])
        batch, order = order[:size], order[size:]
        with torch.enable_grad():
            features = model.embed(as_images(images[batch]), film)
            loss = F.cross_entropy(head(features), columns[batch].to(model.device))
        if not bool(torch.isfinite(loss)):
            raise ClCnapsError(
                f"fsa-film: the loss of step {step} is not finite; set a smaller learning_rate"
            )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return Film(tuple(part.detach() for part in film.gammas), tuple(part.detach() for part in film.betas))


@torch.no_grad()
def _first_task_film(model: CnapsModel, images: Tensor, labels: Tensor) -> Film:
    return model.adapt(model.encode(as_images(images), labels))


FeatureSettings = ClosedFormSettings | ProbeSettings | OwnSettings


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
        self.normalisation = PLAIN
        """What the benchmark did to the images that come, which is undone; a strategy sets it."""
        self.eval()

    def train(self, mode: bool = True) -> FeatureModel:  # noqa: ARG002
        """Stay in inference mode: nothing here is trained by gradient steps."""
        return super().train(False)

    @torch.no_grad()
    def learn(self, inputs: Tensor, labels: Tensor) -> None:
        """Learn one experience, of uint8 images or of features; the first decides the features of all."""
        labels = labels.cpu()
        if len(labels) and int(labels.max()) >= self.n_classes:
            raise BadInputError(f"class id {int(labels.max())} needs more than num_classes={self.n_classes}")
        if self._embed is None:
            self._embed = self._make_features(inputs, labels)
        self.classifier.learn(self._embed(inputs), labels)
        self._seen[labels] = True

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Logits N x num_classes; classes not learned yet are far below all others, and finite.

        Images are in the form that the benchmark last gave, normalised if it normalises, or uint8.
        """
        if self._embed is None:
            return inputs.new_zeros(len(inputs), self.n_classes, dtype=torch.float32)
        found = self.classifier.scores(self._embed(as_images(inputs, self.normalisation))).float()
        seen = self._seen[: found.shape[1]]
        low = found[:, seen].min(dim=1, keepdim=True).values - 100
        logits = low.repeat(1, self.n_classes)
        logits[:, : found.shape[1]][:, seen] = found[:, seen]
        return logits.to(inputs.device)


class FeatureStrategy(OnePassStrategy):
    """SimpleCIL, LDA, ridge, RanPAC, ACIL, KLDA, RanDumb, FSA-FiLM or the joint linear probe on an Avalanche stream.

    Images may have the forms that `CnapsStrategy` takes; features N x D are taken as they are.
    """

    def __init__(
        self,
        *,
        method: str,
        features: FeatureMaker,
        num_classes: int,
        seed: int = 0,
        train_mb_size: int = 64,
        eval_mb_size: int | None = None,
        device: str | torch.device = "auto",
        plugins: Sequence[Any] | None = None,
        settings: dict[str, Any] | None = None,
        **template: Any,
    ) -> None:
        """Make a strategy.

        Args:
            method: a key of `BASELINES` that keeps statistics of features, such as ``ranpac``.
            features: from `cnaps_features` or `first_session_features`; or a function of one's own, which gets uint8
                images, N x 3 x H x W. Images of different sizes need one that has an `image_size`.
            num_classes: of the whole benchmark; class ids are below it.
            seed: decides random maps and held-out images.
            train_mb_size: images per batch handed to plugins while training.
            eval_mb_size: the same in evaluation.
            device: where to compute: auto (a GPU if there is one), cpu, cuda, ...
            plugins: Avalanche plugins.
            settings: fields of the baseline's settings to change.
            template: further keyword arguments of Avalanche's SupervisedTemplate, such as `evaluator`.
        """
        defaults = BASELINES[method].defaults if method in BASELINES else None
        if not isinstance(defaults, FeatureSettings):
            known = [key for key, info in BASELINES.items() if isinstance(info.defaults, FeatureSettings)]
            raise BadInputError(f"no classifier {method!r} on features; there are {', '.join(known)}")
        chosen = with_changes(method, defaults, settings or {})
        target = resolve_device(str(device))
        super().__init__(
            model=FeatureModel(make_classifier(chosen, seed, target), features, num_classes),
            train_mb_size=train_mb_size,
            eval_mb_size=eval_mb_size,
            device=target,
            plugins=plugins,
            **template,
        )
        self.image_size = getattr(features, "image_size", None)

    def learn_batches(self, batches: Sequence[Any]) -> Tensor:
        """Learn the experience as a whole."""
        inputs = self.joined(batches)
        self.features_model.learn(inputs, torch.cat([batch[1] for batch in batches]))
        return torch.cat([self.features_model(part) for part in torch.split(inputs, self.train_mb_size)])

    @property
    def features_model(self) -> FeatureModel:
        """What was learned so far."""
        assert isinstance(self.model, FeatureModel)
        return self.model


class FeatureLearner(PerClassLearner):
    """A classifier on features behind the learner's interface, trained through Avalanche."""

    def __init__(
        self, name: str, inputs: StreamInputs, settings: FeatureSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._settings = settings
        self._experiences = training_experiences(inputs.support, inputs.labels)
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
        if isinstance(self._settings, ClosedFormSettings):
            return self._settings.head.kind == "discriminant"
        return isinstance(self._settings, ProbeSettings)

    def memory_bytes(self) -> int:
        """What the classifier keeps."""
        return self.classifier.memory_bytes()

    def _learn(self, step: int) -> None:
        self.strategy.train(self._experiences[step], eval_streams=[])

    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        return self.classifier.scores(queries)[:, classes_K]


class _OwnClassifier:
    """A registered classifier, whose scores are checked."""

    def __init__(self, name: str, own: Any) -> None:
        missing = [method for method in ("learn", "scores") if not callable(getattr(own, method, None))]
        if missing:
            raise BadInputError(f"the baseline {name!r} has no method {missing[0]!r}")
        self._name, self._own, self._columns = name, own, 0

    def learn(self, features_ND: Tensor, columns_N: Tensor) -> None:
        """Learn one task."""
        self._own.learn(features_ND, columns_N)
        self._columns = max(self._columns, int(columns_N.max()) + 1)

    def scores(self, features_ND: Tensor) -> Tensor:
        """Scores N x C of all columns up to the largest learned."""
        scores = torch.as_tensor(self._own.scores(features_ND))
        expected = (len(features_ND), self._columns)
        if tuple(scores.shape) != expected or not bool(torch.isfinite(scores).all()):
            raise BadInputError(
                f"the baseline {self._name!r} must return finite scores of shape {expected}, not {tuple(scores.shape)}"
            )
        return scores

    def memory_bytes(self) -> int:
        """What it says it keeps, or its attributes that are tensors or arrays."""
        if callable(getattr(self._own, "memory_bytes", None)):
            return int(self._own.memory_bytes())
        return sum(int(value.nbytes) for value in vars(self._own).values() if hasattr(value, "nbytes"))


def make_classifier(settings: FeatureSettings, seed: int, device: torch.device) -> FeatureClassifier:
    """The classifier of these settings, before its first task."""
    if isinstance(settings, ProbeSettings):
        return ProbeClassifier(settings, seed)
    if isinstance(settings, OwnSettings):
        return _OwnClassifier(settings.name, OWN[settings.name](seed))
    return ClosedFormClassifier(settings, seed, device)
