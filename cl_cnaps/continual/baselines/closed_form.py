"""Classifiers on features: a feature map with a head in closed form, and the joint linear probe."""

from __future__ import annotations

import math
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
"""Images on which a strength or a gamma is chosen; more would change it little and take long."""


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
        self._split: tuple[Moments, ...] = ()
        """Of all support images so far those to fit on and those held out, where a strength is chosen by them."""
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
        if isinstance(self.settings.head, RidgeHead):
            self.strength = self._choose_strength(self.settings.head, vectors, columns_N)
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
        return self.map.nbytes() + sum(moments.nbytes() for moments in (self.moments, *self._split))

    def _fit(self, moments: Moments) -> tuple[Tensor, Tensor | None]:
        head = self.settings.head
        if isinstance(head, RidgeHead):
            assert self.strength is not None
            return ridge_weights(moments, self.strength), None
        if isinstance(head, DiscriminantHead):
            return discriminant_weights(moments, head.shrinkage)
        return F.normalize(moments.means_CM, dim=1).T, None

    def _choose_strength(self, head: RidgeHead, vectors_NM: Tensor, columns_N: Tensor) -> float:
        if not isinstance(head.strength, str):
            return head.strength
        last = head.strength == "held-out-last"
        split = self._split or _new_split(vectors_NM)
        room = len(vectors_NM) if last else MOST_TRIED - sum(moments.n for moments in split)
        found = self._try(split, vectors_NM, columns_N, self.tasks, room) if room > 0 else None
        self._split = () if last else split
        # One image, and none before it, leaves nothing to choose by: any positive strength gives the same classes.
        return found[0] if found else self.strength or 1.0

    def _choose_gamma(self, features_ND: Tensor, columns_N: Tensor) -> float:
        scale = scale_gamma(features_ND)
        errors: dict[float, float] = {}
        for gamma in (factor * scale for factor in GAMMAS):
            mapped = draw_map(self.settings.map, features_ND, self.seed, gamma)(features_ND)
            found = [
                self._try(_new_split(mapped), mapped, columns_N, number, MOST_TRIED)
                for number in range(SPLITS)
            ]
            errors[gamma] = sum(error for _, error in filter(None, found))
        # The scale itself if a single image leaves nothing to choose by.
        return min(errors, key=lambda gamma: (errors[gamma], abs(math.log(gamma / scale))))

    def _try(
        self, split: tuple[Moments, ...], vectors_NM: Tensor, columns_N: Tensor, number: int, most: int
    ) -> tuple[float, float] | None:
        """Add a task's images, or so many of them, to `split`; return the best strength on it and its error."""
        train, held_out = split
        seed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        chosen = torch.randperm(len(vectors_NM), generator=torch.Generator().manual_seed(seed))[:most]
        parts = chosen.tensor_split([len(chosen) - held_out_count(len(chosen))])
        for moments, part in zip(split, parts, strict=True):
            moments.add(vectors_NM[part.to(self.device)], columns_N[part])
        return best_strength(train, held_out) if held_out.n else None


def _new_split(vectors_NM: Tensor) -> tuple[Moments, ...]:
    return tuple(Moments(vectors_NM.shape[1], vectors_NM.device) for _ in range(2))


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
