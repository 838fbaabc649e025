"""The loss of one task and its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_cnaps.episodes.episode import EpisodeBatch
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.training.parts import embed_in_parts, encode_in_parts
from cl_cnaps.training.recipe import Optimisation


@dataclass(frozen=True)
class TaskScore:
    """How a task went."""

    loss: float
    """Mean cross-entropy of its queries."""
    accuracy: float


class NotFiniteError(Exception):
    """A loss or a gradient is NaN or infinite; its text says which."""


def add_gradient(model: CnapsModel, batch: EpisodeBatch, training: Optimisation) -> TaskScore:
    """Add a task's gradient to the parameters' `.grad`; the model is in training mode.

    The query cross-entropy counts as one of the tasks of a step; the regulariser counts whole, as in the released
    code. Raises NotFiniteError, with whatever gradient there is by then, if a number is not finite.
    """
    try:
        logits_QK = task_logits(model, batch, training)
        labels_Q = batch.query_labels.to(logits_QK.device)
        loss = nn.functional.cross_entropy(logits_QK / model.temperature, labels_Q)
    except BadInputError as error:  # the classifier refuses features that are not finite
        raise NotFiniteError(str(error)) from error
    value = float(loss.detach())
    if not math.isfinite(value):
        raise NotFiniteError(f"the loss is {value}")
    objective = loss / training.tasks_per_step
    if training.film_regulariser:
        objective = objective + training.film_regulariser * model.adaptation.regularisation()
    torch.autograd.backward(objective)
    return TaskScore(value, accuracy(logits_QK, labels_Q))


def task_logits(model: CnapsModel, batch: EpisodeBatch, training: Optimisation) -> Tensor:
    """Query logits Q x K of one task, differentiable with respect to everything that is learned."""
    support, query, labels_N = batch.support_images, batch.query_images, batch.support_labels
    images = torch.cat([support, query])
    step = training.images_at_once
    if training.activations_gb is not None:
        step = max(1, int(training.activations_gb * 2**30) // model.training_bytes_per_image())
    if step is None or (training.images_at_once is None and step >= len(images)):
        features_ND = model.embed(images, model.adapt(model.encode(support, labels_N, query)))
    else:
        film = model.adapt(encode_in_parts(model, support, labels_N, query, step))
        features_ND = embed_in_parts(model, images, film, step)
    support_ND, query_QD = torch.split(features_ND, [len(support), len(query)])
    head = model.fit(support_ND, labels_N.to(features_ND.device), batch.way)
    return model.logits(head, query_QD)


def accuracy(logits_QK: Tensor, labels_Q: Tensor) -> float:
    """Share of queries whose largest logit is their class's."""
    return float((logits_QK.detach().argmax(dim=1) == labels_Q).double().mean())
