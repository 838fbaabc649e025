"""A model whose images are features already: the closed-form classifier without a network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import Backbone, BackboneInfo
from cl_cnaps.models.cnaps import MODELS, CnapsModel, make_model
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.names import chosen_model


class _AsGiven(nn.Module):
    """Returns what it gets; has one number, so that it has a device and a precision."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1, dtype=torch.float64), requires_grad=False)

    def forward(self, features: Tensor) -> Tensor:
        return features


class _FeatureBackbone(Backbone):
    made_by: str | None = None

    def digest(self) -> str:
        return self.made_by or super().digest()

    def prepare(self, images: Tensor) -> Tensor:
        return images.to(self.network.get_parameter("nothing"))


def features_model(
    name: str,
    width: int,
    *,
    backbone: str = "features",
    backbone_digest: str | None = None,
    weights_source: str = "features as given",
    pretraining: str = "none",
    **settings: Any,
) -> CnapsModel:
    """A model that classifies features N x width, in float64; `backbone` is the network that made them."""
    name = chosen_model(name, settings.get("variant"))
    if name not in MODELS:
        raise BadInputError(f"unknown model {name!r}; there are {', '.join(MODELS)}")
    if name == "cnaps":
        raise BadInputError(
            "the classifier of the model cnaps was trained for its own features: choose another model"
        )
    info = BackboneInfo(backbone, 8, (0.5,) * 3, (0.5,) * 3, width, weights_source, pretraining)
    config = CnapsConfig(
        model=name,
        backbone=backbone,
        adaptation="none",
        learned_temperature=False,
        **settings,
    )
    extractor = _FeatureBackbone(_AsGiven(), info, ())
    extractor.made_by = backbone_digest
    return make_model(config, extractor)
