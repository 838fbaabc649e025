"""State dicts as the authors' scripts write them: the whole model under their names."""

from __future__ import annotations

from functools import cache

import torch

from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsConfig, ModelName, make_model


def released_name(ours: str) -> str:
    """What the released code calls one of our tensors."""
    match ours.split("."):
        case ["backbone", "network", *rest]:
            return "feature_extractor." + ".".join(rest)
        case ["task_encoder", "set_encoder", "layers", layer, part, rest]:
            place = {"conv": 0, "norm": 1}[part]
            return f"set_encoder.pre_pooling_fn.layer{int(layer) + 1}.{place}.{rest}"
        case ["task_encoder", "lstm", rest]:
            return f"set_encoder.sequential_encoder.{rest}"
        case ["adaptation", "stages", stage, "shared", rest]:
            return f"feature_adaptation_network.layers.{stage}.shared_layer.0.{rest}"
        case ["adaptation", "stages", stage, "blocks", block, which, "regulariser"]:
            return f"feature_adaptation_network.layers.{stage}.{which}_regularizers.{block}"
        case ["adaptation", "stages", stage, "blocks", block, which, "layers", layer, rest]:
            place = 2 * int(layer)
            return (
                f"feature_adaptation_network.layers.{stage}.{which}_processors.{block}.{place}.linear.{rest}"
            )
        case ["classifier", part, *rest]:
            return f"classifier_adaptation_network.{part}_means_processor." + ".".join(rest)
    raise AssertionError(ours)


@cache
def made_up_checkpoint(model: ModelName) -> dict[str, torch.Tensor]:
    """A released checkpoint of random numbers; do not change it, copy it."""
    source = make_model(CnapsConfig.papers(model), load_backbone("resnet18", seed=4), seed=4)
    return {released_name(name): tensor for name, tensor in source.state_dict().items()}
