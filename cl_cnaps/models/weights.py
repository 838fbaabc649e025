"""Model weights in safetensors files whose metadata describe them.

A file holds the trained parts of a model, and the backbone too unless a package installs it. A model whose features are
those of other weights, such as FiT's heads on the features of Simple CNAPS, may name those weights in place of the
features.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cl_cnaps import __version__
from cl_cnaps.errors import BadInputError, ClCnapsError, MissingDataError, escaped, foreign
from cl_cnaps.gaussian import FIT_RULES
from cl_cnaps.models.backbones import Backbone, load_backbone
from cl_cnaps.models.cnaps import CnapsModel, make_model
from cl_cnaps.models.config import CnapsConfig
from cl_cnaps.models.encoders import SetEncoderConfig
from cl_cnaps.models.networks import PACKAGED
from cl_cnaps.models.tensor_files import load_exactly, read_metadata, read_tensors, write_tensors
from cl_cnaps.paths import below, weights_root

_log = logging.getLogger(__name__)

FORMAT = "cl-cnaps weights 2"
_BACKBONE = "backbone.network."
_TASK_PARTS = ("task_encoder.", "adaptation.")


@dataclass(frozen=True)
class WeightFile:
    """The metadata of a weight file."""

    name: str
    path: Path
    config: CnapsConfig
    backbone_digest: str
    digest: str
    """Of all numbers and all metadata in the file."""
    has_backbone: bool
    backbone_source: str
    backbone_pretraining: str
    training: Mapping[str, Any]
    """How it was made: recipe, data, tasks, seed, commit; or the checkpoint it was imported from."""
    features: tuple[str, str] | None = None
    """Name and digest of the weights that the task encoder and the adaptation are read from, if not from this file."""

    @property
    def image_size(self) -> int | None:
        """Of the input; None, for the backbone's default, if it was trained at several sizes."""
        found: Any = self.training
        for key in ("recipe", "training", "image_sizes"):
            found = found.get(key) if isinstance(found, Mapping) else None
        return None if found else self.config.image_size


def shipped_root() -> Path:
    """Return the folder of the weights that come with the package."""
    return Path(__file__).parent.parent / "weights"


def save_weights(
    path: Path,
    model: CnapsModel,
    training: Mapping[str, Any],
    *,
    dtype: torch.dtype = torch.float32,
    features: WeightFile | None = None,
) -> WeightFile:
    """Write a model's weights and return the metadata of the file.

    Args:
        path: the file, ending in .safetensors; replaced only when the new one is whole.
        model: the model; a backbone that every installation has is not written.
        training: how the weights were made, as values that JSON can hold.
        dtype: of the trained parameters; the backbone and running statistics are kept as they are.
        features: weights with the same task encoder and adaptation, which are then named and not written.
    """
    if path.suffix != ".safetensors":
        raise ClCnapsError(f"weight files end in .safetensors, {path.name} does not")
    backbone = model.backbone
    has_backbone = not _is_installed(backbone)
    state, trained = model.state_dict(), {name for name, one in model.named_parameters() if one.requires_grad}
    tensors = {
        name: tensor.to(dtype) if name in trained else tensor  # statistics keep their precision
        for name, tensor in state.items()
        if has_backbone or not name.startswith(_BACKBONE)
    }
    if features is not None:
        shared = _task_parts(read_tensors(features.path))
        if any(not torch.equal(state[key].float(), tensor.float()) for key, tensor in shared.items()):
            raise ClCnapsError(f"{path.name} was not written: its features are not those of {features.name}")
        tensors = {key: tensor for key, tensor in tensors.items() if key not in shared}
    for key, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ClCnapsError(f"{key} contains NaN or Inf in {tensor.dtype}: {path.name} was not written")
    metadata = {
        "format": FORMAT,
        "version": __version__,
        "config": json.dumps(model.config.as_json(), sort_keys=True),
        "backbone_digest": backbone.digest(),
        "has_backbone": json.dumps(has_backbone),
        "backbone_source": backbone.info.weights_source,
        "backbone_pretraining": backbone.info.pretraining,
        "training": json.dumps(dict(training), sort_keys=True, allow_nan=False),
        "features": json.dumps(None if features is None else [features.name, features.digest]),
    }
    write_tensors(path, tensors, metadata)
    return describe(path)


def _is_installed(backbone: Backbone) -> bool:
    """Whether the package of this backbone has just these weights."""
    name = backbone.info.name
    try:
        return name in PACKAGED and backbone.digest() == load_backbone(name).digest()
    except MissingDataError:
        return False


def describe(path: Path) -> WeightFile:
    """Return the metadata of a weight file; its numbers are not read."""
    metadata = read_metadata(path)
    if metadata.get("format") != FORMAT:
        raise ClCnapsError(
            f"{path.name} is not a weight file of this program (format {metadata.get('format')!r}, expected "
            f"{FORMAT!r}); released checkpoints are taken in with `cl-cnaps weights import`"
        )
    with foreign(path.name, "damaged: its metadata cannot be read"):
        config, has_backbone, training = (
            json.loads(metadata[k]) for k in ("config", "has_backbone", "training")
        )
        features = json.loads(metadata.get("features", "null"))
        if not isinstance(has_backbone, bool) or not isinstance(training, dict):
            raise TypeError("has_backbone is true or false, and training an object")
        if features is not None:
            name, digest = map(str, features)
            features = (name, digest)
        return WeightFile(
            path.stem,
            path,
            config_from_dict(config, path.name),
            metadata["backbone_digest"],
            metadata["digest"],
            has_backbone,
            metadata["backbone_source"],
            metadata["backbone_pretraining"],
            training,
            features,
        )


def config_from_dict(values: Mapping[str, Any], where: str) -> CnapsConfig:
    """A model configuration; unknown keys and impossible values are refused by name."""
    encoder = dict(values.get("encoder", {}))
    values = dict(values)
    unknown = sorted(set(values) - {field.name for field in fields(CnapsConfig)})
    unknown += sorted(
        f"encoder.{key}" for key in set(encoder) - {field.name for field in fields(SetEncoderConfig)}
    )
    if unknown:
        raise ClCnapsError(f"{where} has unknown settings: {', '.join(unknown)}")
    try:
        if "encoder" in values:
            values["encoder"] = SetEncoderConfig(**encoder)
        return CnapsConfig(**values)
    except BadInputError as error:
        raise ClCnapsError(f"{where} has impossible settings: {error}") from error


def list_weights() -> list[WeightFile]:
    """Return the weight files that have a name: the shipped ones, then the user's own.

    A file that cannot be read is named in a line of the log, and holds up no other.
    """
    found = []
    for path in (
        path for root in (shipped_root(), weights_root()) for path in sorted(root.glob("*.safetensors"))
    ):
        try:
            found.append(describe(path))
        except ClCnapsError as error:
            _log.warning("%s", escaped(f"{path} is left out: {error}"))
    return found


def find_weights(name: str | Path) -> Path:
    """The file for a name or a path."""
    name = str(name)
    if name.endswith(".safetensors") or "/" in name:
        if not Path(name).is_file():
            raise MissingDataError(f"there is no weight file {name}")
        return Path(name)
    roots = (weights_root(), shipped_root())
    for root in roots:
        if (root / f"{name}.safetensors").is_file():
            return root / f"{name}.safetensors"
    known = (
        ", ".join(sorted({path.stem for root in roots for path in root.glob("*.safetensors")})) or "none yet"
    )
    raise MissingDataError(f"no weights called {name!r}; there are: {known} (see `cl-cnaps weights list`)")


def load_weights(name: str | Path, **changes: Any) -> tuple[CnapsModel, WeightFile]:
    """A model from a weight file, in evaluation mode.

    Args:
        name: a name that `weights list` shows, or the path of a .safetensors file.
        changes: settings of the configuration to change, such as `refine_max` or `image_size`; with
            `adaptation="none"` the file's task encoder and adaptation network are left out.
    """
    file = describe(find_weights(name))
    with foreign(file.path.name):  # sizes and names in its metadata may be of any kind
        return _load(file, changes)


def _load(file: WeightFile, changes: Mapping[str, Any]) -> tuple[CnapsModel, WeightFile]:
    tensors = read_tensors(file.path)
    if file.features is not None:
        tensors |= _task_parts(read_tensors(_features_file(file, *file.features).path))
    config = replace(file.config, **{"image_size": file.image_size, **changes})
    if config.metric in FIT_RULES and config.metric != file.config.metric:
        raise MissingDataError(
            f"the metric {config.metric} has weights of its own, which {file.path.name} does not have: train them "
            f"with a recipe such as benchmarks/training/{config.metric}-efficientnet-lite0.toml, and give that file"
        )
    if config.adaptation == "none":
        tensors = {key: tensor for key, tensor in tensors.items() if not key.startswith(_TASK_PARTS)}
    backbone = load_backbone(
        config.backbone, weights="random" if file.has_backbone else "auto", image_size=config.image_size
    )
    model = make_model(config, backbone)
    if not file.has_backbone:
        if backbone.digest() != file.backbone_digest:
            raise ClCnapsError(
                f"{file.path.name} was made for other weights of {config.backbone} (digest {file.backbone_digest}, "
                f"installed {backbone.digest()})"
            )
        tensors = {**_backbone_state(model), **tensors}
    load_exactly(model, tensors, file.path.name)
    encodings = file.training.get("encodings") or {}
    model.source_encodings = {name: torch.tensor(values) for name, values in encodings.items()}
    backbone.info = replace(
        backbone.info, weights_source=file.backbone_source, pretraining=file.backbone_pretraining
    )
    return model.eval(), file


def weights_with_features(name: str, digest: str, *roots: Path) -> WeightFile | None:
    """The weights of this name and digest in one of these folders or by their name, if they hold their features."""
    for path in (below(root, f"{name}.safetensors") for root in (*roots, shipped_root(), weights_root())):
        if path.is_file() and (found := describe(path)).digest == digest and found.features is None:
            return found
    return None


def _features_file(file: WeightFile, name: str, digest: str) -> WeightFile:
    """The weights that a file has its features from: beside it, or by their name."""
    if found := weights_with_features(name, digest, file.path.parent):
        return found
    raise MissingDataError(
        f"{file.path.name} has the features of the weights {name} ({digest}), which are neither beside it nor in "
        "`cl-cnaps weights list`: bring that file, or train these weights again"
    )


def _task_parts(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if key.startswith(_TASK_PARTS)}


def _backbone_state(model: CnapsModel) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if name.startswith(_BACKBONE)}
