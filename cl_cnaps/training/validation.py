"""Accuracy on validation tasks, with adapted and with frozen features."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cl_cnaps.episodes.batch import EpisodeBatch
from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import estimate, mahalanobis_logits, support_statistics
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.training.ranks import Ranks
from cl_cnaps.training.task_data import TaskData
from cl_cnaps.training.task_loss import accuracy


class InterruptedValidationError(Exception):
    """Somebody asked to stop; nothing was changed."""


def validate(
    predict: Callable[[EpisodeBatch], Tensor],
    data: Mapping[str, TaskData],
    tasks: int,
    ranks: Ranks,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Mean accuracy of `predict` on the first tasks of each source; the tasks are shared out over processes."""
    scores_ST = torch.zeros(len(data), tasks, dtype=torch.float64)
    stopped = torch.zeros(1)
    work = [(row, task) for row in range(len(data)) for task in range(tasks)]
    sets = list(data.values())
    for row, task in work[ranks.rank :: ranks.world]:
        if stop():
            stopped += 1
            break
        batch = sets[row][task].batch.to(ranks.device)
        try:
            scores_ST[row, task] = accuracy(predict(batch), batch.query_labels)
        except (
            BadInputError
        ):  # features that are not finite classify nothing: the next step ends with the reason
            scores_ST[row, task] = 0.0
    if ranks.sum(stopped) > 0:
        raise InterruptedValidationError
    means = ranks.sum(scores_ST).mean(dim=1).tolist()
    return dict(zip(data, means, strict=True))


@torch.no_grad()
def adapted_logits(model: CnapsModel, batch: EpisodeBatch) -> Tensor:
    """Logits Q x K of the model in evaluation mode, as it will be used."""
    logits: Tensor = model(batch.support_images, batch.support_labels, batch.query_images, batch.way)
    return logits


@torch.no_grad()
def frozen_logits(model: CnapsModel, batch: EpisodeBatch) -> Tensor:
    """Logits Q x K of the same classifier on the backbone's own features.

    The generated classifier of CNAPS has no meaning there; Simple CNAPS's stands in for it.
    """
    features_ND = model.embed(torch.cat([batch.support_images, batch.query_images]), model.adapt(None))
    support_ND, query_QD = torch.split(features_ND, [len(batch.support_images), len(batch.query_images)])
    if model.config.model == "cnaps":
        statistics = support_statistics(support_ND, batch.support_labels, batch.way)
        return mahalanobis_logits(estimate(statistics), query_QD)
    return model.logits(model.fit(support_ND, batch.support_labels, batch.way), query_QD)


def mean(scores: Mapping[str, float]) -> float:
    """Mean over sources."""
    return sum(scores.values()) / len(scores)
