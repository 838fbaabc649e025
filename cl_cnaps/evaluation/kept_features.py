"""Features of tasks that are kept on disk, one file for each task, in a folder for each model and data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.data.decoding import VERSION
from cl_cnaps.episodes import Episode
from cl_cnaps.models.backbones import state_digest
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.kept_features import features_folder, read_features, write_features

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
    return f"{state_digest(state)} {model.uses_queries_to_encode}"
