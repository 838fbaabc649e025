"""Everything that, with the weights, determines what a model computes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args, get_type_hints

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import Metric, Rule, Unbounded, metric_names
from cl_cnaps.models.adaptation import Generator, Modulation
from cl_cnaps.models.encoders import SetEncoderConfig
from cl_cnaps.models.networks import DEFAULT_BACKBONE
from cl_cnaps.names import ModelName, Variant, chosen_model, refines

__all__ = ["CnapsConfig", "ModelName", "Responsibilities", "Variant", "refinement_bounds"]

Responsibilities = Literal["auto", "raw", "calibrated"]


_MOST_STEPS = 1000  # of refinement, taken whether anything changes or not: the paper takes 2


@dataclass(frozen=True)
class CnapsConfig:
    """The configuration of one model; impossible settings are refused when it is made."""

    model: ModelName = "simple"
    backbone: str = DEFAULT_BACKBONE
    image_size: int | None = None
    """None: the backbone's own."""
    adaptation: Literal["film", "none"] = "film"
    """none: frozen features, no task encoding."""
    modulation: Modulation = "own"
    """Which encoding FiLM is generated from: the task's own; or, to see what that is worth, one that is static over
    tasks, or that of a foreign domain in its stead."""
    generator: Generator = "compact"
    encoder: SetEncoderConfig = field(
        default_factory=lambda: SetEncoderConfig(kind="backbone", standardise=True, image_size=48)
    )
    metric: Metric = "mahalanobis"
    """Of models that do not refine, one of `metric_names()`; protonet is always euclidean, cnaps has none."""
    normaliser: Literal["paper", "released"] = "paper"
    beta: float = 1.0
    learned_temperature: bool = True
    """Divide logits by a learned temperature in training and in probabilities. The paper does not."""
    responsibilities: Responsibilities = "auto"
    """Of queries in the refinement: softmax of the raw logits, or of the logits divided by the temperature
    (calibrated). auto: calibrated where the query set has images of all classes that compete, raw elsewhere; of
    Transductive+ it becomes raw: its temperature fits refined logits, which lie further apart."""
    refine_min: int = 2
    refine_max: int | Unbounded = 4
    variant: Variant = "plain"
    """What an ablation changes; see `VARIANTS`."""

    def __post_init__(self) -> None:
        hints = get_type_hints(CnapsConfig)
        for name in (
            "model",
            "adaptation",
            "generator",
            "metric",
            "modulation",
            "normaliser",
            "responsibilities",
            "variant",
        ):
            allowed = metric_names() if name == "metric" else get_args(hints[name])
            if getattr(self, name) not in allowed:
                raise BadInputError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        chosen_model(self.model, self.variant)
        self._check_metric()
        if self.variant == "plus" and self.responsibilities == "auto":
            object.__setattr__(self, "responsibilities", "raw")
        if self.variant == "plus" and self.adaptation == "none":
            raise BadInputError(
                "Transductive+ is Transductive CNAPS with another training of the adaptation: without "
                "adaptation there is no such variant"
            )
        if self.modulation != "own" and self.adaptation == "none":
            raise BadInputError(
                f"modulation {self.modulation} is of adapted features: there is no adaptation"
            )
        if not 0 < self.beta < math.inf:
            raise BadInputError(f"beta must be positive and finite, got {self.beta}")
        if self.refine_max != "unbounded" and not isinstance(self.refine_max, int):
            raise BadInputError(f"refine_max is a whole number or unbounded, got {self.refine_max!r}")
        if self.refine_min > _MOST_STEPS:
            raise BadInputError(
                f"refine_min is {self.refine_min:,}; at most {_MOST_STEPS:,} steps can be required"
            )
        if self.refine_min < 0 or (isinstance(self.refine_max, int) and self.refine_min > self.refine_max):
            raise BadInputError(
                f"refinement needs 0 <= refine_min <= refine_max, got {self.refine_min} and {self.refine_max}"
            )

    def _check_metric(self) -> None:
        if self.metric == "mahalanobis" or (self.model, self.metric) == ("protonet", "euclidean"):
            return
        if self.model == "protonet":
            raise BadInputError(
                f"protonet is the Euclidean metric: for {self.metric} choose the model simple with that metric"
            )
        if self.variant.startswith("gmm"):
            raise BadInputError(
                f"the variant {self.variant} has its own logits, with squared Mahalanobis distances: it has no "
                f"metric {self.metric}"
            )
        if self.model == "cnaps" or self.refines:
            raise BadInputError(
                f"the metric of the model {self.model} cannot be chosen, got {self.metric!r}: "
                + ("its classifier is linear" if self.model == "cnaps" else "the refinement is Mahalanobis's")
            )

    @property
    def rule(self) -> Rule:
        """How logits are made."""
        return "gmm" if self.variant in ("gmm", "gmm-em") else self.metric

    @property
    def refines(self) -> bool:
        """Whether the query set as a whole takes part in its classification."""
        return refines(self.model, self.variant)

    @property
    def encodes_queries(self) -> bool:
        """Whether the task encoding is the transductive one."""
        return self.model == "transductive" and self.variant != "cot"

    def as_json(self) -> dict[str, Any]:
        """All settings that apply to the model, as JSON holds them."""
        settings = asdict(self)
        if self.variant == "plain":
            del settings["variant"]
        if self.modulation == "own":
            del settings["modulation"]
        if not self.refines:
            del settings["responsibilities"]
        return settings

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


def refinement_bounds(
    least: int | None, most: int | Unbounded | None, usual: tuple[int, int | Unbounded] = (2, 4)
) -> tuple[int, int | Unbounded]:
    """Return least and most steps of refinement: those given, else the usual, moved as far as the other needs."""
    if least is None:
        least = usual[0] if most is None or most == "unbounded" else min(usual[0], most)
    if most is None:
        most = "unbounded" if usual[1] == "unbounded" else max(usual[1], least)
    return least, most
