"""From folders of images to predictions in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cl_cnaps.data import open_source
from cl_cnaps.data.decoding import as_tensor, decode
from cl_cnaps.data.layout import IMAGE_SUFFIXES, natural
from cl_cnaps.data.trees import open_tree
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.loading import LoadedModel, load_model

if TYPE_CHECKING:
    from cl_cnaps.models.folding import FoldedNetwork
    from cl_cnaps.models.heads import Head

load = load_model


@dataclass(frozen=True)
class Prediction:
    """What the classifier makes of one image."""

    name: str
    """The image's file, below the folder that was given."""
    label: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class FewShotClassifier:
    """A classifier for the classes of one folder: adapted once, then used as often as you like.

    >>> classifier = FewShotClassifier.learn("photos/labelled")  # one folder per class, or a zip  # doctest: +SKIP
    >>> for prediction in classifier.predict("photos/new"):  # doctest: +SKIP
    ...     print(prediction.name, prediction.label, prediction.probability)
    """

    loaded: LoadedModel
    classes: tuple[str, ...]
    network: FoldedNetwork
    head: Head

    @staticmethod
    @torch.no_grad()
    def learn(
        folder: str | Path,
        *,
        model: LoadedModel | None = None,
        unlabelled: str | Path | Sequence[str | Path] | Tensor | None = None,
        **options: Any,
    ) -> FewShotClassifier:
        """Learn the classes of a folder (or zip) that has one folder of images per class.

        Args:
            folder: where the labelled images are; all of them are used.
            model: from `cl_cnaps.load`; Simple CNAPS on the default backbone if not given.
            unlabelled: images of the kind to be predicted, as for `predict`; the transductive model needs them.
            options: for `cl_cnaps.load`, when no model is given.
        """
        loaded = model if model is not None else load_model(**options)
        network = loaded.model
        source = open_source(f"folder:{folder}")
        split = source.splits[0]
        classes = source.classes(split)
        size = network.backbone.info.image_size
        images = torch.cat([source.images(split, c, range(source.count(split, c)), size) for c in classes])
        counts = torch.tensor([source.count(split, c) for c in classes])
        labels = torch.arange(len(classes)).repeat_interleave(counts)
        query = None if unlabelled is None else _read(unlabelled, size)[1]
        folded = network.fold(network.adapt(network.encode(images, labels, query)))
        head = network.fit(network.embed_folded(images, folded), labels, len(classes))
        return FewShotClassifier(loaded, classes, folded, head)

    @torch.no_grad()
    def predict(self, images: str | Path | Sequence[str | Path] | Tensor) -> list[Prediction]:
        """Predict a folder (or zip) of images, a list of image files, or uint8 images N x 3 x H x W."""
        model = self.loaded.model
        names, pixels = _read(images, model.backbone.info.image_size)
        probabilities = model.probabilities(self.head, model.embed_folded(pixels, self.network)).cpu()
        best = probabilities.argmax(dim=1)
        return [
            Prediction(name, self.classes[k], float(row[k]), dict(zip(self.classes, row.tolist(), strict=True)))
            for name, row, k in zip(names, probabilities, best.tolist(), strict=True)
        ]


def _read(images: str | Path | Sequence[str | Path] | Tensor, size: int) -> tuple[list[str], Tensor]:
    """Names and pixels of a folder, a zip, a list of files, or of images already in memory."""
    if isinstance(images, Tensor):
        return [str(i) for i in range(len(images))], images
    if isinstance(images, str | Path):
        tree = open_tree(Path(images))
        names = sorted((n for n in tree.names() if n.lower().endswith(IMAGE_SUFFIXES)), key=natural)
        if not names:
            raise BadInputError(f"{images} holds no images ({', '.join(IMAGE_SUFFIXES)})")
        return names, _stack(((tree.read(n), tree.where(n)) for n in names), size)
    files = [Path(file) for file in images]
    return [str(f) for f in files], _stack(((f.read_bytes(), str(f)) for f in files), size)


def _stack(files: Iterable[tuple[bytes, str]], size: int) -> Tensor:
    pixels = [as_tensor(decode(content, where), size) for content, where in files]
    return torch.stack(pixels) if pixels else torch.empty(0, 3, size, size, dtype=torch.uint8)
