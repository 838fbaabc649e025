"""Features that are kept on disk: another way to classify the same images embeds nothing again.

Names of files are digests of everything the numbers depend on, so that a file is either the features to the last bit or
not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.data.atomic import make_folder
from cl_cnaps.data.decoding import VERSION
from cl_cnaps.data.row_files import keep_array, read_array
from cl_cnaps.episodes import Episode
from cl_cnaps.models.backbones import state_digest
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.folding import FoldedNetwork


def features_folder(folder: Path, model: CnapsModel, *more: Hashable) -> Path:
    """A folder in `folder` for the features of models that prepare and embed images alike, and agree in `more`."""
    info = model.backbone.info
    said = (
        (info.name, info.image_size, info.mean, info.std),
        (model.device.type, torch.__version__),
        more,
    )
    place = folder / hashlib.sha256(repr(said).encode()).hexdigest()[:16]
    make_folder(place)
    return place


def read_features(file: Path, images: int) -> Tensor | None:
    """The features in a file; None if it is not there or damaged."""
    rows = read_array(file, f"{file.parent.name}/{file.stem}")
    return torch.from_numpy(rows) if rows is not None and len(rows) == images else None


def write_features(file: Path, rows_ND: Tensor) -> None:
    """Keep features; a full disk costs a later run its features, not this one its work."""
    keep_array(file, f"{file.parent.name}/{file.stem}", rows_ND.cpu().numpy())


@dataclass(frozen=True)
class KeptBatches:
    """The features that adapted networks give to batches of images, one file for each network and batch."""

    folder: Path

    @classmethod
    def under(cls, folder: Path, model: CnapsModel) -> KeptBatches:
        """Those of the networks that `model` folds, in a folder for those of all models."""
        return cls(features_folder(folder, model, "batches"))

    def file(self, images: Tensor, network: FoldedNetwork) -> Path:
        """Where the features of uint8 images under a network are, or will be."""
        digest = hashlib.sha256(images.cpu().contiguous().numpy().tobytes())
        digest.update(repr((tuple(images.shape), state_digest(network.network.state_dict()))).encode())
        return self.folder / f"{digest.hexdigest()[:32]}.rows"


def embed_or_find(
    model: CnapsModel, images: Tensor, network: FoldedNetwork, kept: KeptBatches | None
) -> Tensor:
    """Features N x D of uint8 images: those that are kept, or else new ones, which are kept if there is a place."""
    if kept is None:
        return model.embed_folded(images, network)
    file = kept.file(images, network)
    if (rows := read_features(file, len(images))) is not None:
        return rows.to(model.device)
    features = model.embed_folded(images, network)
    write_features(file, features)
    return features


Features = tuple[Tensor, Tensor]
"""Of the support and the query images of a task."""


@dataclass(frozen=True)
class KeptFeatures:
    """The features that one model gives the tasks of one data set."""

    folder: Path

    @classmethod
    def under(cls, folder: Path, model: CnapsModel, images: Source) -> KeptFeatures:
        """Those of `model` on `images`, in a folder for those of all models."""
        encoder = model.config.encoder
        return cls(features_folder(folder, model, features_digest(model), encoder, images.digest(), VERSION))

    def of(self, episode: Episode, device: torch.device, embed: Callable[[], Features]) -> Features:
        """The features of a task: those that are there, or else those that `embed` makes, which are kept."""
        file = self.folder / f"{episode.digest()[:32]}.rows"
        support = len(episode.support)
        if (rows := read_features(file, support + len(episode.query))) is not None:
            rows = rows.to(device)
            return rows[:support], rows[support:]
        features = embed()
        write_features(file, torch.cat(features))
        return features


def features_digest(model: CnapsModel) -> str:
    """A digest of all weights that features come from: models that classify differently can have the same."""
    state = {f"backbone.{name}": tensor for name, tensor in model.backbone.network.state_dict().items()}
    if model.config.adaptation == "film":
        for part in ("task_encoder", "adaptation"):
            found = model.get_submodule(part).state_dict()
            state |= {f"{part}.{name}": tensor for name, tensor in found.items()}
    return f"{state_digest(state)} {model.uses_queries_to_encode} {model.config.modulation}"
