"""All images of a source through a frozen network, into a feature file."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cl_cnaps.data.decoding import VERSION
from cl_cnaps.data.feature_files import FeatureTable
from cl_cnaps.data.source import CountedSource, total
from cl_cnaps.memory import check_memory
from cl_cnaps.models.cnaps import CnapsModel

_CHUNK = 256
"""Images read and embedded between two reports of progress."""


def embed_source(
    source: CountedSource, model: CnapsModel, progress: Callable[[int], None] = lambda _: None
) -> FeatureTable:
    """Embed every image of a source with a model's frozen backbone.

    `progress` is called with the number of images embedded since the last call.
    """
    info = model.backbone.info
    count = total(source)
    check_memory(4 * count * info.width, f"embedding {count:,} images of {source.name}")
    class_names = merged([source.classes(split) for split in source.splits])
    number = {name: position for position, name in enumerate(class_names)}
    features = np.empty((count, info.width), np.float32)
    labels: list[int] = []
    splits: list[str] = []
    network = model.fold(model.adapt(None))
    for split in source.splits:
        for class_name in source.classes(split):
            images = source.count(split, class_name)
            for first in range(0, images, _CHUNK):
                chunk = range(first, min(first + _CHUNK, images))
                pixels = source.images(split, class_name, chunk, info.image_size)
                rows = slice(len(labels), len(labels) + len(chunk))
                features[rows] = model.embed_folded(pixels, network).cpu().numpy()
                labels += [number[class_name]] * len(chunk)
                splits += [split] * len(chunk)
                progress(len(chunk))
    metadata = {
        "source": source.name,
        "source_digest": source.digest(),
        "backbone": info.name,
        "backbone_digest": model.backbone.digest(),
        "backbone_weights": info.weights_source,
        "pretraining": info.pretraining,
        "image_size": info.image_size,
        "decoding": VERSION,
    }
    return FeatureTable.of(features, np.array(labels), np.array(splits), class_names, metadata)


def merged(orders: Sequence[Sequence[str]]) -> list[str]:
    """Return all names in one order, in which those of each sequence keep theirs wherever the sequences agree."""
    names: list[str] = []
    for order in orders:
        position = 0
        for name in order:
            if name in names:
                position = names.index(name) + 1
            else:
                names.insert(position, name)
                position += 1
    return names
