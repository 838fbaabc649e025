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
    """Logits Q x K of one task from its uint8 images."""
    support_SD, query_QD = task_features(model, support, support_labels, query)
    return logits_from_features(model, support_SD, support_labels, query_QD, way)


@torch.no_grad()
def task_features(
    model: CnapsModel, support: Tensor, support_labels: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Features S x D and Q x D of uint8 images: encode, adapt and fold once, embed support and query together."""
    network = model.fold(model.adapt(model.encode(support, support_labels, query)))
    features = model.embed_folded(torch.cat([support, query]), network)
    return features[: len(support)], features[len(support) :]


@torch.no_grad()
def logits_from_features(
    model: CnapsModel, support_SD: Tensor, support_labels: Tensor, query_QD: Tensor, way: int
) -> Tensor:
    """Logits Q x K from features: fit on the support set, score the query set."""
    labels = support_labels.to(support_SD.device)
    return checked_logits(model, model.logits(model.fit(support_SD, labels, way), query_QD))


def checked_logits(model: CnapsModel, logits_QK: Tensor) -> Tensor:
    """The logits, or an error if there is one that is not finite."""
    if not bool(torch.isfinite(logits_QK).all()):
        raise ClCnapsError(
            f"the model {model.config.model} gave logits that are not finite on a {logits_QK.shape[1]}-way task"
        )
    return logits_QK


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
