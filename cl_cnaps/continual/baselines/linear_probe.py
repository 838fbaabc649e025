"""The joint linear probe: logistic regression on all features so far, the upper bound for a linear head on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from cl_cnaps.continual.baselines.closed_form_settings import ProbeSettings
from cl_cnaps.continual.baselines.ridge import held_out_count


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
