"""Classifiers on features: a feature map with a head in closed form, and the joint linear probe."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional as F

from cl_cnaps.continual.baselines.feature_maps import FeatureMap, draw_map, scale_gamma
from cl_cnaps.continual.baselines.heads import (
    Moments,
    best_shrinkage,
    best_strength,
    discriminant_weights,
    held_out_count,
    ridge_weights,
)
from cl_cnaps.continual.baselines.settings import (
    ClosedFormSettings,
    DiscriminantHead,
    FourierMap,
    ProbeSettings,
    RidgeHead,
)
from cl_cnaps.errors import ClCnapsError

GAMMAS = tuple(4.0**power for power in range(-3, 3))
"""Candidates for the gamma of random Fourier features, as multiples of scikit-learn's scale."""

SPLITS = 5
"""Random splits of the first task on which they are compared."""

MOST_TRIED = 2000
"""Images on which a strength, a shrinkage or a gamma is chosen, of vectors with more numbers than this: the largest
matrix to decompose for a choice. Of shorter vectors all images are used."""

Best = Callable[[Moments, Tensor, Tensor], tuple[float, float]]
"""Choose a value by fitting on the first and comparing on vectors with labels; return it with its error."""


class _Split:
    """Support images so far: sums of those to fit on, and the vectors held out."""

    def __init__(self, width: int, device: torch.device) -> None:
        self.train = Moments(width, device)
        self.rows_HM = torch.zeros(0, width, device=device)
        self.labels_H = torch.zeros(0, dtype=torch.int64, device=device)

    def add(self, vectors_NM: Tensor, columns_N: Tensor, seed: int) -> bool:
        """Add images, a fifth of them to those held out; return whether there was room for any."""
        room = len(vectors_NM)
        if self.train.width > MOST_TRIED:
            room = MOST_TRIED - self.train.n - len(self.rows_HM)
        order = torch.randperm(len(vectors_NM), generator=torch.Generator().manual_seed(seed))[: max(0, room)]
        fit, held_out = order.tensor_split([len(order) - held_out_count(len(order))])
        device = vectors_NM.device
        self.train.add(vectors_NM[fit.to(device)], columns_N[fit])
        self.rows_HM = torch.cat([self.rows_HM, vectors_NM[held_out.to(device)]])
        self.labels_H = torch.cat([self.labels_H, columns_N[held_out].to(device)])
        return len(order) > 0

    def choose(self, best: Best) -> tuple[float, float] | None:
        """Return the best value and its error; none if nothing is held out."""
        return best(self.train, self.rows_HM, self.labels_H) if len(self.labels_H) else None

    def nbytes(self) -> int:
        """Memory taken."""
        return self.train.nbytes() + self.rows_HM.nbytes + self.labels_H.nbytes


class ClosedFormClassifier:
    """Learns features with class columns; scores features. Nothing but sums is carried from task to task."""

    def __init__(self, settings: ClosedFormSettings, seed: int, device: torch.device) -> None:
        self.settings = settings
        self.seed = seed
        self.device = device
        self.map: FeatureMap | None = None
        self.moments: Moments | None = None
        self.tasks = 0
        self.gamma: float | None = None
        """Of random Fourier features, where it was chosen on held-out images."""
        self.strength: float | None = None
        """Of the ridge, at the last task."""
        self.shrinkage: float | None = None
        """Of the covariance, at the last task, where it is chosen on held-out images."""
        self._split: _Split | None = None
        """For choosing a strength or shrinkage."""
        self._weights_MC = torch.empty(0)
        self._biases_C: Tensor | None = None

    def learn(self, features_ND: Tensor, columns_N: Tensor) -> None:
        """Learn one task from its features and class columns."""
        features_ND, columns_N = features_ND.to(self.device), columns_N.cpu()
        if self.map is None:
            if isinstance(self.settings.map, FourierMap) and self.settings.map.gamma == "held-out":
                self.gamma = self._choose_gamma(features_ND, columns_N)
            self.map = draw_map(self.settings.map, features_ND, self.seed, self.gamma)
        vectors = self.map(features_ND)
        if self.moments is None:
            second = self.settings.head.kind != "cosine"
            self.moments = Moments(vectors.shape[1], self.device, second=second)
        self._choose(vectors, columns_N)
        self.moments.add(vectors, columns_N)
        self._weights_MC, self._biases_C = self._fit(self.moments)
        self.tasks += 1

    def scores(self, features_ND: Tensor) -> Tensor:
        """Scores N x C of all columns up to the largest learned; larger is better."""
        if self.map is None:
            raise ClCnapsError("no task has been learned yet")
        vectors = self.map(features_ND.to(self.device))
        if self.settings.head.kind == "cosine":
            vectors = F.normalize(vectors, dim=1)
        scores = vectors.double() @ self._weights_MC
        return scores if self._biases_C is None else scores + self._biases_C

    def memory_bytes(self) -> int:
        """Sums, and the map that was drawn."""
        if self.map is None or self.moments is None:
            return 0
        split = 0 if self._split is None else self._split.nbytes()
        return self.map.nbytes() + self.moments.nbytes() + split

    def _fit(self, moments: Moments) -> tuple[Tensor, Tensor | None]:
        head = self.settings.head
        if isinstance(head, RidgeHead):
            assert self.strength is not None
            return ridge_weights(moments, self.strength), None
        if isinstance(head, DiscriminantHead):
            return discriminant_weights(moments, head.shrinkage if self.shrinkage is None else self.shrinkage)
        return F.normalize(moments.means_CM, dim=1).T, None

    def _choose(self, vectors_NM: Tensor, columns_N: Tensor) -> None:
        """Choose the head's strength or shrinkage on held-out images of this task and those before it."""
        head = self.settings.head
        # One image, and none before it, leaves nothing to choose by: any strength or shrinkage gives the same classes.
        if isinstance(head, RidgeHead):
            if isinstance(head.strength, str):
                last = head.strength == "held-out-last"
                self.strength = (
                    self._held_out(best_strength, vectors_NM, columns_N, last) or self.strength or 1.0
                )
            else:
                self.strength = head.strength
        elif isinstance(head, DiscriminantHead) and head.shrinkage == "held-out":
            self.shrinkage = self._held_out(best_shrinkage, vectors_NM, columns_N) or self.shrinkage or 1.0

    def _held_out(
        self, best: Best, vectors_NM: Tensor, columns_N: Tensor, last_task: bool = False
    ) -> float | None:
        split = self._split or _Split(vectors_NM.shape[1], self.device)
        self._split = None if last_task else split
        found = split.choose(best) if split.add(vectors_NM, columns_N, self._seed(self.tasks)) else None
        return found[0] if found else None

    def _choose_gamma(self, features_ND: Tensor, columns_N: Tensor) -> float:
        scale = scale_gamma(features_ND)
        errors: dict[float, float] = {}
        for gamma in (factor * scale for factor in GAMMAS):
            mapped = draw_map(self.settings.map, features_ND, self.seed, gamma)(features_ND)
            errors[gamma] = 0.0
            for number in range(SPLITS):
                split = _Split(mapped.shape[1], self.device)
                split.add(mapped, columns_N, self._seed(number))
                found = split.choose(best_strength)
                errors[gamma] += found[1] if found else 0.0
        # The scale itself if a single image leaves nothing to choose by.
        return min(errors, key=lambda gamma: (errors[gamma], abs(math.log(gamma / scale))))

    def _seed(self, number: int) -> int:
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])


class ProbeClassifier:
    """Fits scikit-learn's logistic regression at every task on the features of all tasks so far, which it keeps."""

    def __init__(self, settings: ProbeSettings, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self._features: list[Tensor] = []
        self._columns: list[Tensor] = []
        self._pipeline: Pipeline | None = None

    def learn(self, features_ND: Tensor, columns_N: Tensor) -> None:
        """Learn one task from its features and class columns."""
        self._features.append(features_ND.cpu())
        self._columns.append(columns_N.cpu())
        features, labels = torch.cat(self._features).numpy(), torch.cat(self._columns).numpy()
        several = len(np.unique(labels)) > 1
        self._pipeline = _probe(self._best(features, labels)).fit(features, labels) if several else None

    def scores(self, features_ND: Tensor) -> Tensor:
        """Log probabilities N x C of all columns up to the largest learned; those in between are very low."""
        columns = 1 + max(int(labels.max()) for labels in self._columns)
        if self._pipeline is None:
            return torch.zeros(len(features_ND), columns, dtype=torch.float64)
        found = self._pipeline.decision_function(features_ND.cpu().numpy())
        if found.ndim == 1:  # of two classes scikit-learn gives one score
            found = np.stack([-found, found], axis=1) / 2
        scores = torch.full((len(features_ND), columns), -1e9, dtype=torch.float64)
        scores[:, torch.as_tensor(self._pipeline.classes_)] = torch.as_tensor(found, dtype=torch.float64)
        return scores.log_softmax(dim=1)

    def memory_bytes(self) -> int:
        """Every feature learned from, with its label."""
        return sum(kept.nbytes for kept in (*self._features, *self._columns))

    def _best(self, features: Any, labels: Any) -> float:
        """Return the penalty with the best accuracy on held-out support images; the first of equal ones."""
        order = np.random.default_rng([self.seed, len(self._columns)]).permutation(len(labels))
        # Of each class one image at least stays to learn from.
        _, first = np.unique(labels[order], return_index=True)
        free = np.delete(order, first)
        held_out = free[: held_out_count(len(labels))]
        if len(held_out) == 0:
            return self.settings.candidates[0]
        train = np.setdiff1d(order, held_out)
        scores = [
            _probe(value).fit(features[train], labels[train]).score(features[held_out], labels[held_out])
            for value in self.settings.candidates
        ]
        return self.settings.candidates[int(np.argmax(scores))]


def _probe(inverse_strength: float) -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=inverse_strength, max_iter=300, tol=1e-3))
