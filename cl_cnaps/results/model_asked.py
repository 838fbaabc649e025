"""The model that a run is asked for, in the words that all verbs share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cl_cnaps.gaussian import Unbounded
from cl_cnaps.models.config import refinement_bounds
from cl_cnaps.models.loading import LoadedModel, load_model


@dataclass(frozen=True, kw_only=True)
class ModelAsked:
    """Which model, on which backbone, with which weights and settings. None stands for the default of the model."""

    model: str | None = None
    backbone: str | None = None
    backbone_weights: str = "auto"
    weights: str | None = None
    image_size: int | None = None
    metric: str | None = None
    variant: str | None = None
    refine_min: int | None = None
    refine_max: int | Unbounded | None = None
    seed: int = 0
    device: str = "auto"

    @property
    def bounds(self) -> dict[str, Any]:
        """The least and most steps of refinement where something is asked of them."""
        if self.refine_min is None and self.refine_max is None:
            return {}
        least, most = refinement_bounds(self.refine_min, self.refine_max)
        return {"refine_min": least, "refine_max": most}

    def load(self, adaptation: Literal["film", "none"] | None, **bounds: Any) -> LoadedModel:
        """The model, with these bounds of the refinement, or those that were asked for."""
        return load_model(
            self.model,  # type: ignore[arg-type]  # checked there
            backbone=self.backbone,
            backbone_weights=self.backbone_weights,
            weights=self.weights,
            adaptation=adaptation,
            image_size=self.image_size,
            seed=self.seed,
            device=self.device,
            metric=self.metric,
            variant=self.variant,
            **(bounds or self.bounds),
        )
