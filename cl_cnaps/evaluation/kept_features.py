"""Features of tasks that are kept on disk: another way to classify the same tasks embeds nothing again.

One file for each task, in a folder for each model and data set. Names are digests of everything the numbers depend on,
so that a file is either the task's features to the last bit or not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.data.atomic import make_folder, partial_file
from cl_cnaps.data.decoding import VERSION
from cl_cnaps.episodes import Episode
from cl_cnaps.models.backbones import state_digest
from cl_cnaps.models.cnaps import CnapsModel

Features = tuple[Tensor, Tensor]
"""Of the support and the query images of a task."""


@dataclass(frozen=True)
class KeptFeatures:
    """The features that one model gives the tasks of one data set."""

    folder: Path

    @classmethod
    def under(cls, folder: Path, model: CnapsModel, images: Source) -> KeptFeatures:
        """Those of `model` on `images`, in a folder for those of all models."""
        info = model.backbone.info
        said = (
            features_digest(model),
            (info.name, info.image_size, info.mean, info.std, model.config.encoder),
            images.digest(),
            VERSION,
            (model.compiled, model.device.type, torch.__version__),
        )
        place = folder / hashlib.sha256(repr(said).encode()).hexdigest()[:16]
        make_folder(place)
        return cls(place)

    def of(self, episode: Episode, device: torch.device, embed: Callable[[], Features]) -> Features:
        """The features of a task: those that are there, or else those that `embed` makes, which are kept."""
        file = self.folder / f"{episode.digest()[:32]}.npy"
        support = len(episode.support)
        if (rows := _read(file, support + len(episode.query))) is not None:
            rows = rows.to(device)
            return rows[:support], rows[support:]
        features = embed()
        # A full disk costs a later run its features, not this one its work.
        with suppress(OSError), partial_file(file) as partial, partial.open("wb") as opened:
            np.save(opened, torch.cat(features).cpu().numpy(), allow_pickle=False)
        return features


def _read(file: Path, images: int) -> Tensor | None:
    """The features in a file; None if it is not there or damaged."""
    try:
        rows = torch.from_numpy(np.load(file, allow_pickle=False))
    except (OSError, ValueError, EOFError):
        return None
    return rows if len(rows) == images else None


def features_digest(model: CnapsModel) -> str:
    """A digest of all weights that features come from: models that classify differently can have the same."""
    state = {f"backbone.{name}": tensor for name, tensor in model.backbone.network.state_dict().items()}
    if model.config.adaptation == "film":
        for part in ("task_encoder", "adaptation"):
            found = model.get_submodule(part).state_dict()
            state |= {f"{part}.{name}": tensor for name, tensor in found.items()}
    return f"{state_digest(state)} {model.uses_queries_to_encode}"
