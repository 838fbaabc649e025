"""A ready model from a few words: which model, on which backbone, with which weights."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.backbones import DEFAULT_BACKBONE, load_backbone
from cl_cnaps.models.cnaps import MODELS, CnapsModel, make_model
from cl_cnaps.models.config import CnapsConfig, ModelName
from cl_cnaps.models.weights import describe, find_weights, load_weights, shipped_root


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode and where its numbers come from."""

    model: CnapsModel
    weights_source: str
    weights_digest: str | None


def load_model(
    name: ModelName = "simple",
    *,
    backbone: str | None = None,
    weights: str | Path | None = None,
    backbone_weights: str = "auto",
    adaptation: Literal["film", "none"] = "film",
    image_size: int | None = None,
    seed: int = 0,
    device: str = "auto",
    **settings: Any,
) -> LoadedModel:
    """A model, in evaluation mode, on its device.

    Args:
        name: simple, transductive, cnaps or protonet.
        backbone: efficientnet-lite0 (the default), resnet18 or timm:NAME; a weight file's own if `weights` is given.
        weights: name or path of a weight file; by default the one shipped for this model and backbone, if there is
            one; `none` for an untrained adaptation (on the compact generator, the identity).
        backbone_weights: auto, random or a state dict file; a weight file brings its own.
        adaptation: film, or none for the frozen features of the backbone (of the weight file, if one is given).
        image_size: side of the input; the backbone's own by default.
        seed: decides weights that are drawn at random.
        device: auto, cpu, cuda, ...
        settings: other settings of `CnapsConfig`.
    """
    if name not in MODELS:
        raise BadInputError(f"unknown model {name!r}; there are {', '.join(MODELS)}")
    unknown = sorted(set(settings) - {field.name for field in fields(CnapsConfig)})
    if unknown:
        raise BadInputError(f"there is no setting {unknown[0]!r} of a model")
    changes = {
        key: value for key, value in {"image_size": image_size, **settings}.items() if value is not None
    }
    target = resolve_device(device)
    asked = None if weights is None or str(weights) == "none" else str(weights)
    if asked and backbone_weights != "auto":
        raise BadInputError(f"the weights {asked} come with their own backbone: leave backbone_weights out")
    shipped = None
    if weights is None and adaptation == "film" and backbone_weights == "auto":
        shipped = _shipped(name, backbone or DEFAULT_BACKBONE)
    if found := asked or shipped:
        if adaptation == "none":
            changes["adaptation"] = adaptation
        return _from_file(name, found, backbone, changes, target)
    config = replace(
        CnapsConfig.for_backbone(name, backbone or DEFAULT_BACKBONE), adaptation=adaptation, **changes
    )
    extractor = load_backbone(config.backbone, weights=backbone_weights, image_size=image_size, seed=seed)
    model = make_model(config, extractor, seed)
    return LoadedModel(model.to(target), _says(model), None)


def _from_file(
    name: ModelName, weights: str, backbone: str | None, changes: dict[str, Any], device: torch.device
) -> LoadedModel:
    """A model from a weight file, refusing files of another model or backbone."""
    made_for = describe(find_weights(weights)).config
    if name == "protonet" and made_for.model == "simple":
        changes = {**changes, "model": "protonet"}  # the same features, other distances
    elif made_for.model != name:
        raise ClCnapsError(f"the weights {weights} are for the model {made_for.model}, not for {name}")
    if backbone is not None and made_for.backbone != backbone:
        raise ClCnapsError(f"the weights {weights} are for {made_for.backbone}, not for {backbone}")
    loaded, file = load_weights(weights, **changes)
    return LoadedModel(loaded.to(device), f"{file.path.name} ({file.digest})", file.digest)


def resolve_device(name: str) -> torch.device:
    """The device of that name; auto is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(f"device {name!r} cannot be used here: {reason}") from error
    return device


def _shipped(name: ModelName, backbone: str) -> str | None:
    """The shipped weights for a model, if any; ProtoNet shares those of Simple CNAPS, whose features it uses."""
    path = (
        shipped_root()
        / f"{'simple' if name == 'protonet' else name}-{backbone.replace(':', '-')}.safetensors"
    )
    return str(path) if path.is_file() else None


def _says(model: CnapsModel) -> str:
    if model.config.adaptation == "none":
        return "none needed: frozen features"
    if model.config.model == "cnaps":
        return "none: the adaptation and the generated classifier are untrained"
    if model.config.generator == "compact":
        return "none: FiLM starts at the identity, so these are frozen features"
    return "none: the adaptation network is untrained"
