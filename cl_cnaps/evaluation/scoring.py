"""One task: predict its queries, then compare. Query labels are looked at in `score` and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.episodes import Episode
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.cnaps import CnapsModel


@dataclass(frozen=True)
class EpisodeScore:
    """What a task was like and how many of its queries were right, class by class in way order."""

    index: int
    shots: tuple[int, ...]
    queries: tuple[int, ...]
    correct: tuple[int, ...]

    @property
    def way(self) -> int:
        """Number of classes."""
        return len(self.shots)

    @property
    def accuracy(self) -> float:
        """Share of all queries that were right."""
        return sum(self.correct) / sum(self.queries)


@torch.no_grad()
def query_logits(
    model: CnapsModel, support: Tensor, support_labels: Tensor, query: Tensor, way: int
) -> Tensor:
    """Logits Q x K from uint8 images: encode, adapt and fold once, embed support and query together."""
    network = model.fold(model.adapt(model.encode(support, support_labels, query)))
    features = model.embed_folded(torch.cat([support, query]), network)
    return logits_from_features(
        model, features[: len(support)], support_labels, features[len(support) :], way
    )


@torch.no_grad()
def logits_from_features(
    model: CnapsModel, support_SD: Tensor, support_labels: Tensor, query_QD: Tensor, way: int
) -> Tensor:
    """Logits Q x K from features: fit on the support set, score the query set."""
    labels = support_labels.to(support_SD.device)
    logits = model.logits(model.fit(support_SD, labels, way), query_QD)
    if not bool(torch.isfinite(logits).all()):
        raise ClCnapsError(
            f"the model {model.config.model} gave logits that are not finite on a {way}-way task"
        )
    return logits


def score(episode: Episode, logits_QK: Tensor) -> EpisodeScore:
    """Compare the largest logit of each query with its label."""
    if logits_QK.shape != (len(episode.query), episode.way):
        raise BadInputError(
            f"{len(episode.query)} queries of {episode.way} classes have logits of shape {tuple(logits_QK.shape)}"
        )
    labels = episode.query[:, 0]
    right = logits_QK.argmax(dim=1).cpu().numpy() == labels
    correct = np.bincount(labels[right], minlength=episode.way)
    return EpisodeScore(
        episode.index,
        tuple(episode.shots.tolist()),
        tuple(episode.queries.tolist()),
        tuple(correct.tolist()),
    )
