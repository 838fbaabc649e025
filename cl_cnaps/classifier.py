"""From folders of images to predictions in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cl_cnaps.data import open_source
from cl_cnaps.data.decoding import as_tensor, decode
from cl_cnaps.data.layout import IMAGE_SUFFIXES, is_hidden, natural
from cl_cnaps.data.source import Source
from cl_cnaps.data.trees import Tree, open_tree
from cl_cnaps.errors import BadInputError, MissingDataError
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
        if model is not None and options:
            raise BadInputError(f"a model was given, so {', '.join(options)} cannot be chosen any more")
        source, split = _labelled(folder)
        classes = source.classes(split)
        loaded = model if model is not None else load_model(**options)
        network = loaded.model
        if network.uses_queries_to_encode and unlabelled is None:
            raise BadInputError(
                f"the model {network.name} looks at the images to be predicted too: give them as `unlabelled`"
            )
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
        """Predict a folder (or zip) of images, image files, or uint8 images N x 3 x H x W."""
        model = self.loaded.model
        names, pixels = _read(images, model.backbone.info.image_size)
        probabilities = model.probabilities(self.head, model.embed_folded(pixels, self.network)).cpu()
        best = probabilities.argmax(dim=1)
        return [
            Prediction(
                name, self.classes[k], float(row[k]), dict(zip(self.classes, row.tolist(), strict=True))
            )
            for name, row, k in zip(names, probabilities, best.tolist(), strict=True)
        ]


def _labelled(folder: str | Path) -> tuple[Source, str]:
    """The images of a folder of class folders and the split they are in, if that is what it is."""
    source = open_source(f"folder:{folder}")
    _check_every_folder_has_images(open_tree(Path(folder).expanduser()))
    if len(source.splits) > 1:
        raise BadInputError(
            f"{folder} holds several splits ({', '.join(source.splits)}): give the folder of one of them"
        )
    split = source.splits[0]
    classes = source.classes(split)
    if len(classes) < 2:
        raise BadInputError(f"{folder} holds one class ({classes[0]}): there is nothing to tell it from")
    return source, split


def _check_every_folder_has_images(tree: Tree) -> None:
    """Refuse a folder without a readable image: a class would go missing without a word."""
    names = [PurePosixPath(name) for name in tree.names() if not is_hidden(name)]
    with_images = {name.parent for name in names if name.name.lower().endswith(IMAGE_SUFFIXES)}
    folders = {name.parent for name in names}
    if tree.path.is_dir():  # where a folder may be empty
        below = (path.relative_to(tree.path) for path in tree.path.rglob("*") if path.is_dir())
        folders |= {PurePosixPath(path) for path in below if not is_hidden(path.as_posix())}
    around = {parent for folder in with_images for parent in (folder, *folder.parents)}
    bare = sorted(f for f in folders if f not in around and not with_images.intersection(f.parents))
    if bare:
        raise BadInputError(
            f"{tree.where(str(bare[0]))} holds no images ({', '.join(IMAGE_SUFFIXES)}): put some there or take the "
            "folder away"
        )


def _read(images: str | Path | Sequence[str | Path] | Tensor, size: int) -> tuple[list[str], Tensor]:
    """Names and pixels of a folder, a zip, a list of files, or of images already in memory."""
    if isinstance(images, Tensor):
        return [str(i) for i in range(len(images))], images
    if isinstance(images, str | Path) and not str(images).lower().endswith(IMAGE_SUFFIXES):
        tree = open_tree(Path(images))
        found = (n for n in tree.names() if n.lower().endswith(IMAGE_SUFFIXES) and not is_hidden(n))
        names = sorted(found, key=natural)
        if not names:
            raise BadInputError(f"{images} holds no images ({', '.join(IMAGE_SUFFIXES)})")
        return names, _stack(((tree.read(n), tree.where(n)) for n in names), size)
    files = [images] if isinstance(images, str | Path) else list(images)
    return [str(file) for file in files], _stack(((_content(Path(f)), str(f)) for f in files), size)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise MissingDataError(f"{file} cannot be read ({error.strerror})") from error


def _stack(files: Iterable[tuple[bytes, str]], size: int) -> Tensor:
    pixels = [as_tensor(decode(content, where), size) for content, where in files]
    return torch.stack(pixels) if pixels else torch.empty(0, 3, size, size, dtype=torch.uint8)
