"""FeCAM: one covariance per class. Avalanche's classifier, with factors in place of repeated pseudo-inverses."""

from __future__ import annotations

import torch
from avalanche.models import FeCAMClassifier
from avalanche.training.plugins import CurrentDataFeCAMUpdate
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.baselines.benchmark import avalanche_benchmark
from cl_cnaps.continual.baselines.inputs import StreamInputs
from cl_cnaps.continual.baselines.learner import BaselineLearner
from cl_cnaps.continual.baselines.quiet import quiet_avalanche
from cl_cnaps.continual.baselines.settings import FecamSettings
from cl_cnaps.continual.baselines.statistics_strategy import StatisticsStrategy
from cl_cnaps.errors import BadInputError, ClCnapsError


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

    def _shrink_cov(self, cov: Tensor) -> Tensor:
        # Avalanche takes the mean of the off-diagonal entries that are not zero. Over all of them the result is
        # positive semi-definite whatever the features; the two differ only where features are constant.
        size = len(cov)
        diagonal_mean = cov.diagonal().mean()
        off_mean = (cov.sum() - cov.diagonal().sum()) / max(1, size * (size - 1))
        identity = torch.eye(size, device=cov.device, dtype=cov.dtype)
        added: Tensor = self.shrink1 * diagonal_mean * identity + self.shrink2 * off_mean * (1 - identity)
        return cov + added

    def update_class_cov_dict(self, class_cov_dict: dict[int, Tensor], momentum: float = 0.5) -> None:
        """Factor the covariances; a class seen again is averaged with its earlier covariance, as in Avalanche."""
        for label, covariance in class_cov_dict.items():
            merged = covariance.double()
            if label in self.factors:
                before = self.factors[label].double()
                merged = momentum * merged + (1 - momentum) * before @ before.T
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


class FecamLearner(BaselineLearner):
    """FeCAM behind the learner's interface."""

    def __init__(
        self, name: str, inputs: StreamInputs, settings: FecamSettings, seed: int, device: torch.device
    ) -> None:
        super().__init__(name, inputs, seed, device)
        self._experiences = avalanche_benchmark(inputs).train_stream
        self._settings = settings
        self.classifier = FactoredFecam(settings)
        self._strategy = StatisticsStrategy(
            classifier=self.classifier, device=device, plugins=[CurrentDataFeCAMUpdate()]
        )

    def memory_bytes(self) -> int:
        """A mean and a covariance factor per class."""
        kept = (*self.classifier.class_means_dict.values(), *self.classifier.factors.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in kept)

    def _learn(self, step: int) -> None:
        self._check(step)
        self._strategy.train(self._experiences[step], eval_streams=[])
        self.classifier.eval()

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
        if self._settings.tukey and bool((features < 0).any()):
            raise BadInputError(
                f"fecam takes the square root of the features and found {float(features.min()):g};"
                " set tukey=False for a backbone whose features can be negative"
            )
