"""The model that a recipe begins with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from cl_cnaps.errors import BadInputError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsModel, make_model
from cl_cnaps.models.weights import load_weights
from cl_cnaps.training.recipe import Recipe


def build_model(recipe: Recipe) -> tuple[CnapsModel, Mapping[str, Any]]:
    """The recipe's model before its first step, and what it started from."""
    model, start = _started(recipe)
    if recipe.temperature is not None:
        torch.nn.init.constant_(model.log_temperature, math.log(recipe.temperature))
    return model, start


def _started(recipe: Recipe) -> tuple[CnapsModel, Mapping[str, Any]]:
    """A new model, or one that has what it can have of the weights it starts from.

    With `start`, all tensors of those weights that have the same name and shape are taken over; so simple weights
    start a transductive model, of which only the LSTM is new. Their backbone is taken too, unless the recipe
    names another.
    """
    config, size = recipe.model, recipe.model.image_size
    if recipe.start is None:
        backbone = load_backbone(
            config.backbone, weights=recipe.backbone_weights, image_size=size, seed=recipe.seed
        )
        if backbone.info.pretraining == "none" and recipe.backbone_weights != "random":
            raise BadInputError(
                f"{config.backbone} has no weights of its own: give --backbone-weights FILE, such as one made by "
                "`cl-cnaps pretrain`, or `random` to adapt an untrained network"
            )
        return make_model(config, backbone, recipe.seed), {}
    other, file = load_weights(recipe.start, **({} if size is None else {"image_size": size}))
    if file.config.backbone != config.backbone or recipe.backbone_weights != "auto":
        raise BadInputError(
            f"the recipe starts from {recipe.start}, which brings its own {file.config.backbone}; "
            f"leave backbone_weights out, and let the model's backbone be the same (it is {config.backbone})"
        )
    model = make_model(config, other.backbone, recipe.seed)
    given, own = (_trained_tensors(each) for each in (other, model))
    taken = {name for name in own if name in given and given[name].shape == own[name].shape}
    if not any(name.startswith("adaptation.") for name in taken):
        raise BadInputError(f"cannot start from {recipe.start}: nothing of its adaptation fits this model")
    model.load_state_dict({name: given[name] for name in taken}, strict=False)
    return model, {"weights": file.name, "digest": file.digest, "new": sorted(set(own) - taken)}


def _trained_tensors(model: CnapsModel) -> dict[str, Any]:
    return {name: value for name, value in model.state_dict().items() if not name.startswith("backbone.")}
