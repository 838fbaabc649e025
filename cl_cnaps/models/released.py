"""Import of the authors' checkpoints: resnet18; Simple, Transductive and original CNAPS with `film` adaptation.

The released state dicts hold the whole model under other names. Nothing is guessed: a key that is unknown, missing
or of another shape is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from cl_cnaps.errors import ClCnapsError
from cl_cnaps.models.backbones import load_backbone
from cl_cnaps.models.cnaps import CnapsModel, make_model
from cl_cnaps.models.config import CnapsConfig, ModelName
from cl_cnaps.models.encoders import SetEncoderConfig
from cl_cnaps.models.tensor_files import load_exactly, read_tensors

_STAGE = r"feature_adaptation_network\.layers\.(\d)\."
_RENAMES: list[tuple[str, str]] = [
    (r"feature_extractor\.(.+)", r"backbone.network.\1"),
    (r"set_encoder\.sequential_encoder\.(.+)", r"task_encoder.lstm.\1"),
    (_STAGE + r"shared_layer\.0\.(weight|bias)", r"adaptation.stages.\1.shared.\2"),
    (_STAGE + r"(gamma[12]|beta[12])_regularizers\.(\d)", r"adaptation.stages.\1.blocks.\3.\2.regulariser"),
    (r"classifier_adaptation_network\.(weight|bias)_means_processor\.(.+)", r"classifier.\1.\2"),
]
_SET_ENCODER = re.compile(r"set_encoder\.pre_pooling_fn\.layer(\d)\.([01])\.(.+)")
_PROCESSOR = re.compile(_STAGE + r"(gamma[12]|beta[12])_processors\.(\d)\.([024])\.linear\.(weight|bias)")


def import_checkpoint(
    path: Path, model: ModelName | None = None, *, batch_statistics: bool = False
) -> CnapsModel:
    """A model with the weights of a released checkpoint, giving the authors' logits.

    Args:
        path: the authors' .pt file; loaded as plain tensors only.
        model: simple, transductive or cnaps; found by the checkpoint's keys if not given.
        batch_statistics: normalise the set encoder by the images at hand, as the authors' few-shot scripts do
            (their continual and active scripts use running statistics, the default here).
    """
    released = read_tensors(path)
    theirs = {_rename(name): name for name in released}
    tensors = {ours: released[name] for ours, name in theirs.items()}
    found = _kind(tensors)
    if model is not None and model != found:
        raise ClCnapsError(f"{path.name} is a checkpoint of {found}, not of {model}")
    config = replace(
        CnapsConfig.papers(found),
        normaliser="released",
        encoder=SetEncoderConfig(batch_statistics=batch_statistics),
    )
    imported = make_model(config, load_backbone("resnet18"))
    load_exactly(imported, tensors, path.name, theirs)
    backbone = imported.backbone
    backbone.info = replace(
        backbone.info, weights_source=path.name, pretraining=f"as the authors trained {path.name}"
    )
    return imported.eval()


def _kind(tensors: Mapping[str, Tensor]) -> ModelName:
    if any(name.startswith("classifier.") for name in tensors):
        return "cnaps"
    return "transductive" if any(name.startswith("task_encoder.lstm.") for name in tensors) else "simple"


def _rename(name: str) -> str:
    """The name here of a tensor there; names that are not known stay, and are refused when loaded."""
    if match := _SET_ENCODER.fullmatch(name):
        layer, part, rest = match.groups()
        return f"task_encoder.set_encoder.layers.{int(layer) - 1}.{'conv' if part == '0' else 'norm'}.{rest}"
    if match := _PROCESSOR.fullmatch(name):
        stage, which, block, layer, rest = match.groups()
        return f"adaptation.stages.{stage}.blocks.{block}.{which}.layers.{int(layer) // 2}.{rest}"
    for pattern, replacement in _RENAMES:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, replacement, name)
    return name
