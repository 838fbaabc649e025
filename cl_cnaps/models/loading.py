"""A ready model from a few words: which model, on which backbone, with which weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.backbones import DEFAULT_BACKBONE, load_backbone
from cl_cnaps.models.cnaps import MODELS, CnapsConfig, CnapsModel, ModelName, make_model
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
    weights: str | None = None,
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
            one; `none` for an adaptation that starts at the identity.
        backbone_weights: auto, random or a state dict file.
        adaptation: film, or none for frozen features.
        image_size: side of the input; the backbone's own by default.
        seed: decides weights that are drawn at random.
        device: auto, cpu, cuda, ...
        settings: other settings of `CnapsConfig`.
    """
    if name not in MODELS:
        raise BadInputError(f"unknown model {name!r}; there are {', '.join(MODELS)}")
    changes = {key: value for key, value in {"image_size": image_size, **settings}.items() if value is not None}
    target = resolve_device(device)
    if adaptation == "film" and weights != "none":
        found = weights or _shipped(name, backbone or DEFAULT_BACKBONE, backbone_weights)
        if found:
            loaded, file = load_weights(found, **_for_model(name, found), **changes)
            if backbone is not None and loaded.config.backbone != backbone:
                raise ClCnapsError(f"the weights {file.name} are for {loaded.config.backbone}, not for {backbone}")
            return LoadedModel(loaded.to(target), f"{file.path.name} ({file.digest})", file.digest)
    config = replace(CnapsConfig.for_backbone(name, backbone or DEFAULT_BACKBONE), adaptation=adaptation, **changes)
    extractor = load_backbone(config.backbone, weights=backbone_weights, image_size=image_size)
    model = make_model(config, extractor, seed)
    return LoadedModel(model.to(target), _says(model), None)


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


def _shipped(name: ModelName, backbone: str, backbone_weights: str) -> str | None:
    """The shipped weights for a model, if any; ProtoNet shares those of Simple CNAPS, whose features it uses."""
    if backbone_weights != "auto":
        return None
    path = shipped_root() / f"{'simple' if name == 'protonet' else name}-{backbone.replace(':', '-')}.safetensors"
    return str(path) if path.is_file() else None


def _for_model(name: ModelName, weights: str) -> dict[str, Any]:
    """Settings that make a weight file serve the model asked for, refusing files of another model."""
    made_for = describe(find_weights(weights)).config.model
    if made_for == name:
        return {}
    if name == "protonet" and made_for == "simple":
        return {"model": "protonet"}
    raise ClCnapsError(f"the weights {weights} are for the model {made_for}, not for {name}")


def _says(model: CnapsModel) -> str:
    if model.config.adaptation == "none":
        return "none needed: frozen features"
    if model.config.model == "cnaps":
        return "none: the adaptation and the generated classifier are untrained"
    if model.config.generator == "compact":
        return "none: FiLM starts at the identity, so these are frozen features"
    return "none: the adaptation network is untrained"
