"""Features that are kept on disk: another way to classify the same images embeds nothing again.

Names of files are digests of everything the numbers depend on, so that a file is either the features to the last bit or
not there.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cl_cnaps.data import Source
from cl_cnaps.data.atomic import make_folder
from cl_cnaps.data.cache import keep_array, read_array
from cl_cnaps.data.source import VERSION
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.film import FoldedNetwork
from cl_cnaps.models.tensor_files import state_digest

if TYPE_CHECKING:
    from cl_cnaps.episodes import Episode
    from cl_cnaps.features.frozen import FeatureRows


def features_folder(folder: Path, model: CnapsModel, *more: Hashable) -> Path:
    """A folder in `folder` for the features of models that prepare and embed images alike, and agree in `more`."""
    info = model.backbone.info
    decides = (
        (info.name, info.image_size, info.mean, info.std),
        (model.device.type, torch.__version__),
        more,
    )
    target = folder / hashlib.sha256(repr(decides).encode()).hexdigest()[:16]
    make_folder(target)
    return target


def read_kept(file: Path, images: int) -> Tensor | None:
    """The features in a file; None if it is not there or damaged."""
    rows = read_array(file, f"{file.parent.name}/{file.stem}")
    return torch.from_numpy(rows) if rows is not None and len(rows) == images else None


def write_kept(file: Path, rows_ND: Tensor) -> None:
    """Keep features; a full disk costs a later run its features, not this one its work."""
    keep_array(file, f"{file.parent.name}/{file.stem}", rows_ND.cpu().numpy())


class FeatureStore(Protocol):
    """Where the features that adapted networks give to batches of images are found again."""

    def of(self, images: Tensor, network: FoldedNetwork, embed: Callable[[], Tensor]) -> Tensor:
        """Return the features of uint8 images under a network: those that are there, or else what `embed` makes."""


_DIGESTS: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def _digest(images: Tensor, network: FoldedNetwork) -> str:
    """Return a digest of uint8 images and of the network, whose weights stay as they are."""
    if network.network not in _DIGESTS:
        _DIGESTS[network.network] = state_digest(network.network.state_dict())
    digest = hashlib.sha256(images.cpu().contiguous().numpy().tobytes())
    digest.update(repr((tuple(images.shape), _DIGESTS[network.network])).encode())
    return digest.hexdigest()[:32]


@dataclass(frozen=True)
class KeptBatches:
    """Features on disk, one file for each network and batch."""

    folder: Path

    @classmethod
    def under(cls, folder: Path, model: CnapsModel) -> KeptBatches:
        """Those of the networks that `model` folds, in a folder for those of all models."""
        return cls(features_folder(folder, model, "batches"))

    def of(self, images: Tensor, network: FoldedNetwork, embed: Callable[[], Tensor]) -> Tensor:
        """Return the features in the file of this network and these images, which is made if it is not there."""
        file = self.folder / f"{_digest(images, network)}.rows"
        if (rows := read_kept(file, len(images))) is not None:
            return rows
        features = embed()
        write_kept(file, features)
        return features


class SharedFeatures:
    """Features in memory that several models of one run have in common."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Tensor, float]] = {}
        self.saved = 0.0
        """Seconds of embedding that models were spared so far."""

    def clear(self) -> None:
        """Forget all features."""
        self._found.clear()

    def of(self, images: Tensor, network: FoldedNetwork, embed: Callable[[], Tensor]) -> Tensor:
        """Return the features of this network and these images, embedded the first time."""
        key = _digest(images, network)
        if key in self._found:
            features, seconds = self._found[key]
            self.saved += seconds
            return features
        start = time.perf_counter()
        features = embed()
        self._found[key] = (features, time.perf_counter() - start)
        return features

    def before(self, other: FeatureStore | None) -> FeatureStore:
        """Return a store that looks here first and then in `other`."""
        return self if other is None else _Two(self, other)


@dataclass(frozen=True)
class _Two:
    first: FeatureStore
    second: FeatureStore

    def of(self, images: Tensor, network: FoldedNetwork, embed: Callable[[], Tensor]) -> Tensor:
        return self.first.of(images, network, lambda: self.second.of(images, network, embed))


def embed_or_find(
    model: CnapsModel, images: Tensor, network: FoldedNetwork, kept: FeatureStore | None
) -> Tensor:
    """Features N x D of uint8 images: those that are kept, or else new ones, which are then kept."""
    if kept is None:
        return model.embed_folded(images, network)
    return kept.of(images, network, lambda: model.embed_folded(images, network)).to(model.device)


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
        if (rows := read_kept(file, support + len(episode.query))) is not None:
            rows = rows.to(device)
            return rows[:support], rows[support:]
        features = embed()
        write_kept(file, torch.cat(features))
        return features

    def table(self, rows: FeatureRows) -> Tensor | None:
        """Features that do not depend on the task, of the images of all tasks; None if they are not there."""
        return read_kept(self.folder / f"{rows.digest()}.rows", rows.count)

    def keep_table(self, rows: FeatureRows, features_ND: Tensor) -> None:
        """Keep such features."""
        write_kept(self.folder / f"{rows.digest()}.rows", features_ND)


def features_digest(model: CnapsModel) -> str:
    """A digest of all that features come from: models that classify differently can have the same."""
    state = {f"backbone.{name}": tensor for name, tensor in model.backbone.network.state_dict().items()}
    if model.config.adaptation == "film":
        for part in ("task_encoder", "adaptation"):
            found = model.get_submodule(part).state_dict()
            state |= {f"{part}.{name}": tensor for name, tensor in found.items()}
        if model.config.modulation != "own":
            state |= {f"source.{name}": tensor for name, tensor in model.source_encodings.items()}
    return f"{state_digest(state)} {model.uses_queries_to_encode} {model.config.modulation}"
