"""A ready model from a few words: which model, on which backbone, with which weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.gaussian import FIT_RULES
from cl_cnaps.models.backbones import Backbone, load_backbone
from cl_cnaps.models.cnaps import MODELS, CnapsModel, make_model
from cl_cnaps.models.config import CnapsConfig, ModelName
from cl_cnaps.models.networks import DEFAULT_BACKBONE, BackboneInfo
from cl_cnaps.models.weights import WeightFile, describe, find_weights, load_weights, shipped_root
from cl_cnaps.names import chosen_model, weights_model


@dataclass(frozen=True)
class TrainedOn:
    """What of a data set an adaptation was trained on."""

    split: str
    """Of the data set itself, or in capitals of its official specification."""
    classes: int
    left_out: frozenset[str] = frozenset()
    """Classes of the split that were not trained on."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode and where its numbers come from."""

    model: CnapsModel
    weights_source: str
    weights_digest: str | None
    trained_on: Mapping[str, TrainedOn] | None = field(default_factory=dict)
    """Data sets that its adaptation was trained on; None if its weights do not say."""


def model_of(given: LoadedModel | CnapsModel) -> CnapsModel:
    """Return the model alone, with or without where its numbers come from."""
    return given.model if isinstance(given, LoadedModel) else given


def load_model(
    name: ModelName | None = None,
    *,
    backbone: str | None = None,
    weights: str | Path | None = None,
    backbone_weights: str = "auto",
    adaptation: Literal["film", "none"] | None = None,
    image_size: int | None = None,
    seed: int = 0,
    device: str = "auto",
    **settings: Any,
) -> LoadedModel:
    """A model, in evaluation mode, on its device.

    Args:
        name: simple (the default), transductive, cnaps or protonet; a `variant` has its own.
        backbone: efficientnet-lite0 (the default), -lite1, -lite2, resnet18 or timm:NAME; a weight file's own if
            `weights` is given.
        weights: name or path of a weight file; by default the one shipped for this model and backbone, or frozen
            features if none is; `none` for an untrained adaptation (on the compact generator, the identity).
        backbone_weights: auto, download (timm's, from the hub), random or a state dict file; a weight file brings its
            own.
        adaptation: film, or none for the frozen features of the backbone (of the weight file, if one is given); by
            default film where there are weights for it, else none.
        image_size: side of the input; the backbone's own by default.
        seed: decides weights that are drawn at random.
        device: auto, cpu, cuda, ...
        settings: other settings of `CnapsConfig`, such as `metric` and `variant`; those that are None stay as they
            are in the weight file, or at their default.
    """
    for what, text in (("weights", weights), ("backbone", backbone), ("backbone_weights", backbone_weights)):
        if text is not None and not str(text).strip():
            raise BadInputError(f"{what} is an empty text: is a variable of the shell not set?")
    name = cast(ModelName, chosen_model(name, settings.get("variant")))
    if name not in MODELS:
        raise BadInputError(f"unknown model {name!r}; there are {', '.join(MODELS)}")
    unknown = sorted(set(settings) - {field.name for field in fields(CnapsConfig)})
    if unknown:
        raise BadInputError(f"there is no setting {unknown[0]!r} of a model")
    changes = {
        key: value for key, value in {"image_size": image_size, **settings}.items() if value is not None
    }
    variant = changes.get("variant")
    if name == "protonet" and changes.get("metric", "euclidean") != "euclidean":
        raise BadInputError(
            f"protonet is the Euclidean metric: for {changes['metric']} choose the model simple with that metric"
        )
    target = resolve_device(device)
    given = None if weights is None or str(weights) == "none" else str(weights)
    if given and backbone_weights != "auto":
        raise BadInputError(f"the weights {given} come with their own backbone: leave backbone_weights out")
    own = None
    if weights is None and adaptation != "none" and backbone_weights == "auto":
        own = shipped(name, variant, backbone or DEFAULT_BACKBONE, changes.get("metric"))
    if found := given or own:
        if adaptation == "none":
            changes["adaptation"] = adaptation
        return _from_file(name, found, backbone, changes, target)
    if weights is None and name == "cnaps":
        raise MissingDataError(
            f"no weights of CNAPS on {backbone or DEFAULT_BACKBONE} are shipped, and its classifier is generated by a "
            "trained network: give --weights (`cl-cnaps weights import` takes in the authors'), or `none` for untrained"
        )
    if weights is None and variant == "plus":
        raise MissingDataError(
            f"no weights of Transductive+ on {backbone or DEFAULT_BACKBONE} are shipped, and it is Transductive CNAPS "
            'but for its training: give --weights of one that was trained so (`variant = "plus"` in a recipe)'
        )
    if weights is None and adaptation == "film":
        raise MissingDataError(
            f"no adaptation weights of {name} on {backbone or DEFAULT_BACKBONE} are shipped: give --weights, "
            "or `none` for an untrained adaptation"
        )
    if adaptation is None:
        adaptation = "none" if weights is None else "film"
    config = replace(
        CnapsConfig.for_backbone(name, backbone or DEFAULT_BACKBONE), adaptation=adaptation, **changes
    )
    extractor = load_backbone(config.backbone, weights=backbone_weights, image_size=image_size, seed=seed)
    model = make_model(config, extractor, seed)
    return LoadedModel(model.to(target), _source_without_weights(model), None)


def _from_file(
    name: ModelName, weights: str, backbone: str | None, changes: dict[str, Any], device: torch.device
) -> LoadedModel:
    """A model from a weight file, refusing files of another model or backbone.

    A file serves every model and variant with the same features; it decides the variant unless one is given.
    """
    made_for = describe(find_weights(weights)).config
    its_own = made_for.variant if made_for.model == name else "plain"
    if its_own == "plus" and changes.get("adaptation") == "none":  # of which the training is left out
        its_own = "plain"
    variant = changes.get("variant", its_own)
    if weights_model(name, variant) != weights_model(made_for.model, made_for.variant):
        wanted = name if variant == "plain" else f"{name}, variant {variant}"
        raise ClCnapsError(f"the weights {weights} are for the model {made_for.model}, not for {wanted}")
    if variant == "plus" and made_for.variant != "plus":
        raise ClCnapsError(
            f"the weights {weights} were not trained through the refinement, which is all that makes Transductive+ "
            "another model: leave the variant out, or give weights that were"
        )
    if name == "protonet":
        changes = {**changes, "metric": "euclidean"}
    changes = {**changes, "model": name, "variant": variant}
    if backbone is not None and made_for.backbone != backbone:
        raise ClCnapsError(f"the weights {weights} are for {made_for.backbone}, not for {backbone}")
    loaded, file = load_weights(weights, **changes)
    source = f"{file.path.name} ({file.digest})"
    return LoadedModel(loaded.to(device), source, file.digest, _trained_on(loaded, file))


def _trained_on(model: CnapsModel, file: WeightFile) -> Mapping[str, TrainedOn] | None:
    if model.config.adaptation == "none":
        return {}
    data = file.training.get("data")
    if data is None:
        return None
    with foreign(file.path.name, "damaged: what it was trained on cannot be read"):
        left_out = {
            one["name"]: frozenset(one.get("leave_out", ()))
            for one in file.training.get("recipe", {}).get("sources", ())
        }
        return {
            name: TrainedOn(one["train"]["split"], one["train"]["classes"], left_out.get(name, frozenset()))
            for name, one in data.items()
            if "train" in one
        }


def resolve_device(name: str) -> torch.device:
    """The device of that name; auto is a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with foreign(f"device {name!r}", "cannot be used here"):
        device = torch.device(name)
        float(torch.zeros(1, device=device))  # a device that holds no numbers, such as meta, cannot do this
    return device


def shipped(name: ModelName, variant: str | None, backbone: str, metric: str | None = None) -> str | None:
    """The shipped weights for a model, if any; Transductive+ and FiT's heads have weights of their own."""
    serves = "transductive-plus" if variant == "plus" else weights_model(name, variant)
    for one in (metric, serves) if metric in FIT_RULES else (serves,):
        path = shipped_root() / f"{one}-{backbone.replace(':', '-')}.safetensors"
        if path.is_file():
            return str(path)
    return None


def _source_without_weights(model: CnapsModel) -> str:
    if model.config.adaptation == "none":
        return "no adaptation: frozen features"
    if model.config.model == "cnaps":
        return "none: the adaptation and the generated classifier are untrained"
    if model.config.generator == "compact":
        return "none: FiLM starts at the identity, so these are frozen features"
    return "none: the adaptation network is untrained"


# Features in place of images: the closed-form classifier without a network.


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
