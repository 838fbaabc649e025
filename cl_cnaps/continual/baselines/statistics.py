"""Baselines that keep statistics of classes, by Avalanche's classifiers: nearest class mean, streaming LDA, FeCAM."""

from __future__ import annotations

import logging
from typing import Any

import torch
from avalanche.models import FeCAMClassifier, NCMClassifier
from avalanche.training.plugins import CurrentDataFeCAMUpdate, SupervisedPlugin
from avalanche.training.supervised import StreamingLDA
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn
from torch.nn import functional as F

from cl_cnaps.continual.baselines.heads import oas_shrinkage, solve_positive
from cl_cnaps.continual.baselines.inputs import StreamInputs
from cl_cnaps.continual.baselines.learner import PerClassLearner
from cl_cnaps.continual.baselines.settings import FecamSettings, NcmSettings, SldaSettings
from cl_cnaps.continual.batches import quiet_avalanche
from cl_cnaps.continual.one_pass import training_experiences
from cl_cnaps.errors import BadInputError, ClCnapsError

_log = logging.getLogger(__name__)


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


class NearestMeanLearner(PerClassLearner):
    """Avalanche's NCM classifier behind the learner's interface."""

    def __init__(
        self, name: str, inputs: StreamInputs, settings: NcmSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._experiences = training_experiences(inputs.support, inputs.labels)
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


class StreamingLdaLearner(PerClassLearner):
    """Avalanche's StreamingLDA behind the learner's interface."""

    def __init__(
        self, name: str, inputs: StreamInputs, _settings: SldaSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._experiences = training_experiences(inputs.support, inputs.labels)
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
        # training are not used, so its inverse is marked as fresh, and the real one is made once, here:
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


class FactoredFecam(FeCAMClassifier):  # type: ignore[misc, unused-ignore]
    """Keeps the Cholesky factor of each class's shrunk, normalised covariance.

    Avalanche's classifier takes the pseudo-inverse of every covariance in every batch it scores and keeps all
    covariances twice. A factor is made once, when its class is learned, and gives the same distances.
    """

    def __init__(self, settings: FecamSettings) -> None:
        super().__init__(
            tukey=settings.tukey, shrink1=settings.shrink_diagonal, shrink2=settings.shrink_off_diagonal
        )
        self.factors: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}
        self._new: dict[int, int] = {}

    def expect(self, labels_N: Tensor) -> None:
        """Take the labels of the images whose statistics come next."""
        values, counts = torch.unique(labels_N, return_counts=True)
        self._new = dict(zip(values.tolist(), counts.tolist(), strict=True))

    def _share(self, label: int) -> float:
        """Return the share of the new images among all of a class."""
        return self._new[label] / (self._new[label] + self.counts.get(label, 0))

    def update_class_means_dict(self, class_means_dict: dict[int, Tensor], momentum: float = 0.5) -> None:  # noqa: ARG002
        """Take in class means; those of a class seen again are averaged by the numbers of its images."""
        for label, mean in class_means_dict.items():
            super().update_class_means_dict({label: mean}, self._share(label))

    def _shrink_cov(self, cov: Tensor) -> Tensor:
        # Avalanche takes the mean of the off-diagonal entries that are not zero. Over all of them the result is
        # positive semi-definite whatever the features; the two differ only where features are constant.
        size = len(cov)
        diagonal_mean = cov.diagonal().mean()
        off_mean = (cov.sum() - cov.diagonal().sum()) / max(1, size * (size - 1))
        identity = torch.eye(size, device=cov.device, dtype=cov.dtype)
        added: Tensor = self.shrink1 * diagonal_mean * identity + self.shrink2 * off_mean * (1 - identity)
        return cov + added

    def update_class_cov_dict(self, class_cov_dict: dict[int, Tensor], momentum: float = 0.5) -> None:  # noqa: ARG002
        """Factor the covariances; those of a class seen again are averaged by the numbers of its images."""
        for label, covariance in class_cov_dict.items():
            merged = covariance.double()
            if label in self.factors:
                before, share = self.factors[label].double(), self._share(label)
                merged = share * merged + (1 - share) * before @ before.T
            self.counts[label] = self.counts.get(label, 0) + self._new[label]
            # Centred features leave one direction without variance, which Avalanche's pseudo-inverse drops. No
            # query has a part in it either, so this much on a diagonal of ones has the same effect.
            ridge = 1e-6 * torch.eye(len(merged), dtype=merged.dtype, device=merged.device)
            factor, failed = torch.linalg.cholesky_ex(merged + ridge)
            if bool(failed):
                raise ClCnapsError(
                    f"fecam: the covariance of column {label} is singular; set a larger shrink_diagonal"
                )
            self.factors[label] = factor.float()

    def distances(self, features_ND: Tensor, classes_K: Tensor) -> Tensor:
        """Squared Mahalanobis distances, N x K."""
        transformed = F.normalize(self.apply_transforms(features_ND), dim=-1)
        columns = []
        for label in classes_K.tolist():
            centred = transformed - F.normalize(self.class_means_dict[label], dim=-1)
            whitened = torch.linalg.solve_triangular(self.factors[label], centred.T, upper=False)
            columns.append(whitened.square().sum(dim=0))
        return torch.stack(columns, dim=1)


class FecamLearner(PerClassLearner):
    """FeCAM behind the learner's interface."""

    def __init__(
        self, name: str, inputs: StreamInputs, settings: FecamSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._experiences = training_experiences(inputs.support, inputs.labels)
        self.classifier = FactoredFecam(settings)
        self._strategy = StatisticsStrategy(
            classifier=self.classifier, device=device, plugins=[CurrentDataFeCAMUpdate()]
        )

    def memory_bytes(self) -> int:
        """A mean and a covariance factor per class."""
        kept = (*self.classifier.class_means_dict.values(), *self.classifier.factors.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def _learn(self, step: int) -> None:
        if step == 0 and self.classifier.tukey and bool((self.inputs.support[0] < 0).any()):
            _log.warning(
                "fecam: features below zero have no square root; they are used as they are (tukey=False)"
            )
            self.classifier.tukey = False
        self._check(step)
        self.classifier.expect(self.inputs.labels[step])
        self._strategy.train(self._experiences[step], eval_streams=[])
        self.classifier.eval()

    def _changed(self, step: int) -> set[int]:
        return set(self.inputs.classes[step].tolist())

    def _scores(self, queries: Tensor, classes_K: Tensor) -> Tensor:
        self._check_sign(queries)
        with quiet_avalanche():
            return -self.classifier.distances(queries, classes_K)

    def _check(self, step: int) -> None:
        support, labels = self.inputs.support[step], self.inputs.labels[step]
        self._check_sign(support)
        for column in self.inputs.classes[step].tolist():
            mine = support[labels == column]
            if bool((mine == mine[0]).all()):
                of = f"class {int(self.inputs.class_ids[column])} in task {self.inputs.stream.tasks[step].name!r}"
                found = f"{len(mine)} support image(s) that do not differ"
                raise BadInputError(
                    f"fecam needs the covariance of {of} and found {found}; two different ones will do"
                )

    def _check_sign(self, features: Tensor) -> None:
        if self.classifier.tukey and bool((features < 0).any()):
            raise BadInputError(
                f"fecam takes the square root of the features, which were not negative in the first task, and found "
                f"{float(features.min()):g}; tukey=False uses them as they are"
            )
