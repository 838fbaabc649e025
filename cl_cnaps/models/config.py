"""Everything that, with the weights, determines what a model computes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args, get_type_hints

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import Metric
from cl_cnaps.models.adaptation import Generator
from cl_cnaps.models.backbones import DEFAULT_BACKBONE
from cl_cnaps.models.encoders import SetEncoderConfig

ModelName = Literal["simple", "transductive", "cnaps", "protonet"]


@dataclass(frozen=True)
class CnapsConfig:
    """The configuration of one model; impossible settings are refused when it is made."""

    model: ModelName = "simple"
    backbone: str = DEFAULT_BACKBONE
    image_size: int | None = None
    """None: the backbone's own."""
    adaptation: Literal["film", "none"] = "film"
    """none: frozen features, no task encoding."""
    generator: Generator = "compact"
    encoder: SetEncoderConfig = field(default_factory=lambda: SetEncoderConfig(norm="group", image_size=32))
    metric: Metric = "mahalanobis"
    """Of the simple model; protonet is always euclidean, the others have no choice."""
    normaliser: Literal["paper", "released"] = "paper"
    beta: float = 1.0
    learned_temperature: bool = True
    """Divide logits by a learned temperature in training and in probabilities. The paper does not."""
    refine_min: int = 2
    refine_max: int = 4

    def __post_init__(self) -> None:
        hints = get_type_hints(CnapsConfig)
        for name in ("model", "adaptation", "generator", "metric", "normaliser"):
            allowed = get_args(hints[name])
            if getattr(self, name) not in allowed:
                raise BadInputError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if self.model in ("transductive", "cnaps") and self.metric != "mahalanobis":
            raise BadInputError(f"the metric of the model {self.model} cannot be chosen, got {self.metric!r}")
        if not 0 < self.beta < math.inf:
            raise BadInputError(f"beta must be positive and finite, got {self.beta}")
        if not 0 <= self.refine_min <= self.refine_max:
            raise BadInputError(
                f"refinement needs 0 <= refine_min <= refine_max, got {self.refine_min} and {self.refine_max}"
            )

    @staticmethod
    def papers(model: ModelName = "simple") -> CnapsConfig:
        """The architecture of the paper: ResNet-18 at 84 x 84, its set encoder and its adaptation network."""
        return CnapsConfig(
            model=model,
            backbone="resnet18",
            image_size=84,
            generator="paper",
            encoder=SetEncoderConfig(),
            learned_temperature=False,
        )

    @staticmethod
    def for_backbone(model: ModelName, backbone: str) -> CnapsConfig:
        """The usual configuration of a model on a backbone."""
        return (
            CnapsConfig.papers(model)
            if backbone == "resnet18"
            else CnapsConfig(model=model, backbone=backbone)
        )
