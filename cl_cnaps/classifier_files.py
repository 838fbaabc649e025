"""A learned classifier in one safetensors file: class statistics, encoding and labels; no images, network or code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from cl_cnaps import __version__
from cl_cnaps.calibration import Calibration
from cl_cnaps.continual.continual_cnaps import ContinualCnaps
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, foreign
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.loading import LoadedModel, features_model, load_model
from cl_cnaps.models.tensor_files import read_metadata, read_tensors, state_digest, write_tensors
from cl_cnaps.models.weights import config_from_dict, describe, list_weights
from cl_cnaps.recipes import check_values, from_table

if TYPE_CHECKING:
    from cl_cnaps.classifier import FewShotClassifier

FORMAT = "cl-cnaps classifier 1"
_TENSOR = "tensor"
_DECIDED = ("model", "backbone", "image_size", "adaptation", "generator", "encoder", "learned_temperature")
"""Settings of a model that `load_model` takes by other names, or that its weights decide."""


def save_classifier(classifier: FewShotClassifier, path: Path) -> Path:
    """Write a fitted classifier; the file appears when it is whole."""
    if path.suffix != ".safetensors":
        raise BadInputError(f"classifiers are saved as .safetensors files, {path.name} is not called so")
    if not hasattr(classifier, "continual_"):
        raise BadInputError("nothing has been learned yet: there is nothing to save")
    continual, loaded = classifier.continual_, classifier.loaded_
    labels = {label: i for label, i in classifier.label_ids_.items() if isinstance(label, str | int | float)}
    if len(labels) != len(classifier.label_ids_):
        raise BadInputError("labels that are saved are text or numbers")
    tensors: dict[str, Tensor] = {}
    state = _without_tensors(continual.get_extra_state(), "state", tensors, {})
    about = {
        "parameters": {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in classifier.get_params().items()
            if name not in ("model", "weights", "device") and value is not None
        },
        "config": continual.model.config.as_json(),
        "network": state_digest(continual.model.state_dict()),
        "weights": None if loaded is None else loaded.weights_source,
        "weights_digest": None if loaded is None else loaded.weights_digest,
        "width": continual.model.backbone.info.width,
        "labels": [[label, i] for label, i in labels.items()],
        "classes": classifier.classes_.tolist(),
        "calibration": asdict(classifier.calibration_),
        "state": state,
    }
    metadata = {"format": FORMAT, "version": __version__, "classifier": json.dumps(about, sort_keys=True)}
    try:
        write_tensors(path, tensors, metadata)
    except OSError as error:
        raise ClCnapsError(f"{path} cannot be written ({error.strerror})") from error
    return path


def load_classifier(
    kind: type[FewShotClassifier], path: Path, weights: str | Path | None, device: str
) -> FewShotClassifier:
    """Read a classifier and find the network that it needs."""
    if not path.is_file():
        raise MissingDataError(
            f"there is no classifier {path}: `cl-cnaps learn FOLDER --out {path}` makes one"
        )
    metadata = read_metadata(path)
    if metadata.get("format") != FORMAT:
        raise ClCnapsError(
            f"{path.name} is not a classifier of this program (format {metadata.get('format')!r}, expected {FORMAT!r})"
        )
    with foreign(path.name, "damaged"):  # names and numbers in it may be of any kind
        tensors = read_tensors(path)  # refuses what is not as it was written
        about = json.loads(metadata["classifier"])
        config = config_from_dict(about["config"], path.name)
        loaded, model = _network(path, about, config, weights, device)
        parameters = {**about["parameters"], "model": config.model, "device": device}
        parameters["input"] = "features" if loaded is None else "images"
        if loaded is not None and loaded.weights_digest is not None and weights is not None:
            parameters["weights"] = str(weights)
        classifier = kind(**parameters)
        continual = ContinualCnaps(model, classifier.continual_config)
        continual.set_extra_state(_with_tensors(about["state"], tensors))
        classifier.loaded_, classifier.continual_ = loaded, continual
        classifier.label_ids_ = {label: int(i) for label, i in about["labels"]}
        classifier.classes_ = np.array(about["classes"])
        where = f"{path.name}: calibration"
        check_values(about["calibration"], where)
        classifier.calibration_ = from_table(Calibration, about["calibration"], where)
        if loaded is None:
            classifier.n_features_in_ = about["width"]
    return classifier


def _network(
    path: Path, about: Mapping[str, Any], config: CnapsConfig, weights: str | Path | None, device: str
) -> tuple[LoadedModel | None, CnapsModel]:
    """The model that the classifier was learned with, to the last number, or an error that names it."""
    settings = {f.name: getattr(config, f.name) for f in fields(config) if f.name not in _DECIDED}
    if config.backbone == "features":
        return None, features_model(config.model, about["width"], **settings)
    parameters = about["parameters"]
    digest = about["weights_digest"]
    if digest is not None and weights is None:
        weights = next((str(file.path) for file in list_weights() if file.digest == digest), None)
        if weights is None:
            raise MissingDataError(
                f"{path.name} needs the weights {about['weights']}, which are not here: give their file "
                "(--weights FILE, in Python weights=), or put it into the folder that `cl-cnaps weights list` names"
            )
    elif digest is not None and describe(Path(str(weights))).digest != digest:
        raise ClCnapsError(f"{path.name} needs the weights {about['weights']}, and {weights} are others")
    elif digest is None and config.adaptation == "film":
        weights = "none"
    loaded = load_model(
        config.model,
        backbone=config.backbone,
        weights=weights,
        backbone_weights="auto" if digest is not None else _without_download(parameters),
        adaptation=config.adaptation,
        image_size=config.image_size,
        seed=parameters.get("seed", 0),
        device=device,
        **settings,
    )
    if loaded.model.config != config or state_digest(loaded.model.state_dict()) != about["network"]:
        raise ClCnapsError(
            f"{path.name} was learned with another network than the {config.backbone} that is installed here "
            f"({loaded.weights_source}): its classes would be wrong"
        )
    return loaded, loaded.model


def _without_download(parameters: Mapping[str, Any]) -> str:
    """Where the backbone's weights come from; what was downloaded once is found again without calling the hub."""
    given = str(parameters.get("backbone_weights", "auto"))
    return "auto" if given == "download" else given


def _without_tensors(value: Any, name: str, tensors: dict[str, Tensor], seen: dict[int, str]) -> Any:
    """The same nested lists and dicts with names in place of tensors; a tensor that is held twice is stored once."""
    if isinstance(value, Tensor):
        if id(value) not in seen:
            seen[id(value)] = name
            tensors[name] = value.clone()
        return {_TENSOR: seen[id(value)]}
    if isinstance(value, Mapping):
        pairs = [
            [key, _without_tensors(item, f"{name}.{key}".strip("."), tensors, seen)]
            for key, item in value.items()
        ]
        return {"items": pairs}
    if isinstance(value, list | tuple):
        return [_without_tensors(item, f"{name}.{i}", tensors, seen) for i, item in enumerate(value)]
    return value


def _with_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _with_tensors(item, tensors) for key, item in value["items"]}
    if isinstance(value, list):
        return [_with_tensors(item, tensors) for item in value]
    return value
