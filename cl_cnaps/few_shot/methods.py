"""Several ways to classify the same features of a task: what differs in the classifier alone embeds nothing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from cl_cnaps.few_shot.scoring import checked_logits
from cl_cnaps.gaussian import Rounds
from cl_cnaps.models.adaptation import GaussianHead
from cl_cnaps.models.cnaps import CnapsModel, TransductiveCnaps, make_model
from cl_cnaps.models.config import CnapsConfig


def classifier(model: CnapsModel, config: CnapsConfig) -> CnapsModel:
    """What classifies the features of `model` as `config` says; the model itself if that is its own way.

    It shares the model's backbone and has no adaptation, since it is given features.
    """
    if config == model.config:
        return model
    # Transductive+ was trained otherwise, which the features show, and classifies as Transductive CNAPS.
    variant = "plain" if config.variant == "plus" else config.variant
    size = model.backbone.info.image_size
    head_alone = replace(config, adaptation="none", variant=variant, image_size=size)
    head = make_model(head_alone, model.backbone).to(model.device)
    # What was learned beyond the features, such as the temperature of the responsibilities, is taken along.
    learned = {name: value for name, value in model.state_dict().items() if name in head.state_dict()}
    head.load_state_dict(learned, strict=False)
    return head


@torch.no_grad()
def logits_of_methods(
    classifiers: Sequence[CnapsModel], support_SD: Tensor, support_labels: Tensor, query_QD: Tensor, way: int
) -> list[Tensor]:
    """Logits Q x K of each: fitted on the support set, scored on the query set.

    Refinements that differ in their bounds alone share their rounds.
    """
    labels = support_labels.to(support_SD.device)
    rounds: dict[CnapsConfig, Rounds] = {}
    found = []
    for one in classifiers:
        head, config = one.fit(support_SD, labels, way), one.config
        if isinstance(one, TransductiveCnaps) and config.refines:
            assert isinstance(head, GaussianHead)
            unbounded = replace(config, refine_min=0, refine_max="unbounded")
            if unbounded not in rounds:
                rounds[unbounded] = one.refinement(head.statistics, query_QD)
            logits = rounds[unbounded].end(config.refine_min, config.refine_max).logits_QK
        else:
            logits = one.logits(head, query_QD)
        found.append(checked_logits(one, logits))
    return found
