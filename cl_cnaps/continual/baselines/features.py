"""The features that a stream's classifiers read: frozen, adapted by CNAPS, or tuned on the first task.

Each is a function of the first task's labelled images, after which the network stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_cnaps.continual.baselines.closed_form_settings import FirstSessionSettings
from cl_cnaps.continual.baselines.inputs import FeatureFunction
from cl_cnaps.continual.batches import as_images
from cl_cnaps.errors import ClCnapsError
from cl_cnaps.features.kept import FeatureStore, embed_or_find
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.film import Film

FeatureMaker = Callable[[Tensor, Tensor], FeatureFunction]
"""Images and labels of the first task to the function that embeds the images of all tasks."""


def cnaps_features(model: CnapsModel, kept: FeatureStore | None = None) -> FeatureMaker:
    """Features as CNAPS has them under the encoding `first`; frozen ones of a model without adaptation."""

    def make(images: Tensor, labels: Tensor) -> FeatureFunction:
        return _embedding(model, _first_task_film(model, images, labels), kept)

    return make


def first_session_features(
    model: CnapsModel, settings: FirstSessionSettings, seed: int, kept: FeatureStore | None = None
) -> FeatureMaker:
    """Features of FSA-FiLM (Panos et al. 2023): FiLM and a linear head learn the first task by gradient steps.

    FiLM starts where CNAPS would have it: at the identity for a model without adaptation.
    """

    def make(images: Tensor, labels: Tensor) -> FeatureFunction:
        start = _first_task_film(model, images, labels)
        return _embedding(model, tune_film(model, start, images, labels, settings, seed), kept)

    return make


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


def _embedding(model: CnapsModel, film: Film, kept: FeatureStore | None) -> FeatureFunction:
    embed = partial(embed_or_find, model, network=model.fold(film), kept=kept)
    return lambda images: embed(as_images(images))
