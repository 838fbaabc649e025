"""What a learner of a run sees: labels that were given, pixels, and features under these labels.

Images go by their numbers: those that may be labelled are 0, 1, ..., the first of them being labelled from the start;
test images have numbers of their own. A learner gets numbers, pixels and the labels in `Labelled`. The other labels of
the first kind are with the `Annotator`, those of test images with the `Scorer`, and neither hands them out.

With adaptation every new label changes the task encoding, so FiLM and all features. That is the one cost of a round
that cannot be shared: images are decoded once, into a packed file, and what the set encoder makes of an image is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.data import Source
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.episodes.episode_images import images_of
from cl_cnaps.errors import BadInputError
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film, FoldedNetwork


@dataclass(frozen=True, eq=False)
class Labelled:
    """The images labelled so far, in the order in which they were, and their classes."""

    numbers: IntArray
    labels: IntArray

    def __post_init__(self) -> None:
        if self.numbers.shape != self.labels.shape or self.numbers.ndim != 1:
            raise BadInputError(f"{len(self.numbers)} images have {len(self.labels)} labels")
        if len(np.unique(self.numbers)) != len(self.numbers):
            raise BadInputError("an image was labelled twice")

    def __len__(self) -> int:
        return len(self.numbers)

    def plus(self, more: Labelled) -> Labelled:
        """These and more."""
        return Labelled(
            np.concatenate([self.numbers, more.numbers]), np.concatenate([self.labels, more.labels])
        )

    def others(self, count: int) -> IntArray:
        """The numbers below `count` that are not labelled, ascending."""
        unlabelled = np.ones(count, dtype=bool)
        unlabelled[self.numbers] = False
        return np.flatnonzero(unlabelled)


class Annotator:
    """Knows the classes of the images that may be labelled, and gives those that are requested."""

    def __init__(self, labels: IntArray) -> None:
        self._labels = labels

    @property
    def count(self) -> int:
        """How many images there are, labelled or not."""
        return len(self._labels)

    def label(self, numbers: IntArray) -> Labelled:
        """The classes of these images."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.count:
            raise BadInputError(f"image numbers must be in 0..{self.count - 1}")
        return Labelled(numbers, self._labels[numbers])


class Scorer:
    """Knows the classes of the test images, and gives nothing but how many predictions are right."""

    def __init__(self, labels: IntArray) -> None:
        self._labels = labels

    def accuracy(self, predictions: IntArray) -> float:
        """The share of test images whose predicted class is theirs."""
        if predictions.shape != self._labels.shape:
            raise BadInputError(f"{len(self._labels)} test images got {len(predictions)} predictions")
        return float((predictions == self._labels).mean())


class Pictures:
    """Images 0, 1, ... of one task. Where an image lies gives its class away, so that is private."""

    def __init__(self, source: Source, class_names: tuple[str, ...], rows: IntArray, size: int) -> None:
        self._source = source
        self._class_names = class_names
        self._rows = rows
        self._size = size

    def __len__(self) -> int:
        return len(self._rows)

    def pixels(self, numbers: IntArray) -> Tensor:
        """Images of these numbers: uint8, N x 3 x size x size; of a source of features these."""
        return images_of(self._source, self._class_names, self._rows[numbers], self._size)


_READ = 512
"""Images read from their file at a time: a multiple of what goes through the network at once."""
_ENCODE = 64
"""Images that the set encoder gets at a time."""


@dataclass(frozen=True)
class FrozenFeatures:
    """Features that depend on the image alone, whatever is labelled."""

    candidates_SD: Tensor
    """Of the images that may be labelled."""
    tests_TD: Tensor

    @staticmethod
    def embedded(model: CnapsModel, film: Film, candidates: Pictures, tests: Pictures) -> FrozenFeatures:
        """Embed the images of a run, where there is no table of the features of all runs."""
        network = model.fold(film)
        both = (embed(model, network, pictures, np.arange(len(pictures))) for pictures in (candidates, tests))
        return FrozenFeatures(*both)

    def given(self, labelled: Labelled) -> _Frozen:
        """The features under these labels."""
        return _Frozen(self, labelled)


@dataclass(frozen=True)
class _Frozen:
    features: FrozenFeatures
    labelled: Labelled

    def with_tests(self) -> tuple[Tensor, Tensor]:
        return self._of(self.labelled.numbers), self.features.tests_TD

    def with_candidates(self, unlabelled: IntArray) -> tuple[Tensor, Tensor]:
        return self._of(self.labelled.numbers), self._of(unlabelled)

    def _of(self, numbers: IntArray) -> Tensor:
        return self.features.candidates_SD[torch.from_numpy(numbers)]


class AdaptedFeatures:
    """Features adapted by FiLM to the labelled images and, of a transductive encoding, to the unlabelled ones.

    The query set of such an encoding is the whole test set when test images are classified, and all images still
    unlabelled when those are.
    """

    def __init__(self, model: CnapsModel, candidates: Pictures, tests: Pictures) -> None:
        self.model = model
        self.candidates = _Encoded(model, candidates)
        self.tests = _Encoded(model, tests)

    def given(self, labelled: Labelled) -> _Adapted:
        """The features under these labels; adapting and embedding wait until they are used."""
        return _Adapted(self, labelled)


class _Adapted:
    """One adaptation of inductive models; of transductive ones, one for each query set."""

    def __init__(self, features: AdaptedFeatures, labelled: Labelled) -> None:
        self._model = features.model
        self._candidates = features.candidates
        self._tests = features.tests
        self._labelled = labelled

    def with_tests(self) -> tuple[Tensor, Tensor]:
        return self._with(self._tests, np.arange(len(self._tests.pictures)))

    def with_candidates(self, unlabelled: IntArray) -> tuple[Tensor, Tensor]:
        return self._with(self._candidates, unlabelled)

    def _with(self, query: _Encoded, numbers: IntArray) -> tuple[Tensor, Tensor]:
        transductive = self._model.uses_queries_to_encode
        network, labelled_ND = self._adapt(query, numbers) if transductive else self._inductive
        return labelled_ND, embed(self._model, network, query.pictures, numbers)

    @cached_property
    def _inductive(self) -> tuple[FoldedNetwork, Tensor]:
        return self._adapt(None, np.arange(0))

    @torch.no_grad()
    def _adapt(self, query: _Encoded | None, numbers: IntArray) -> tuple[FoldedNetwork, Tensor]:
        """The network that the labelled images and these queries lead to, and the features of the former."""
        model, candidates, labelled = self._model, self._candidates, self._labelled.numbers
        labels = torch.from_numpy(self._labelled.labels)
        if (
            model.task_encoder.set_encoder.config.batch_statistics
        ):  # an image's encoding depends on the others'
            pixels = None if query is None else query.pictures.pixels(numbers)
            encoding = model.encode(candidates.pictures.pixels(labelled), labels, pixels)
        else:
            query_Q64 = None if query is None else query.of(numbers)
            encoding = model.task_encoder.pool(candidates.of(labelled), labels, query_Q64)
        network = model.fold(model.adapt(encoding))
        return network, embed(model, network, candidates.pictures, labelled)


Features = FrozenFeatures | AdaptedFeatures
"""Where a learner gets its features from."""


class _Encoded:
    """Pictures and what the set encoder makes of them, which no label changes: 64 numbers each, when first needed."""

    def __init__(self, model: CnapsModel, pictures: Pictures) -> None:
        self.pictures = pictures
        self._model = model
        self._known = np.zeros(len(pictures), dtype=bool)
        self._table: Tensor | None = None

    @torch.no_grad()
    def of(self, numbers: IntArray) -> Tensor:
        """Encodings of these images, N x 64."""
        model, missing = self._model, numbers[~self._known[numbers]]
        if self._table is None:
            shape = (len(self.pictures), ENCODING_WIDTH)
            self._table = torch.zeros(shape, dtype=model.dtype, device=model.device)
        for i in range(0, len(missing), _ENCODE):
            some = missing[i : i + _ENCODE]
            prepared = model.backbone.prepare(self.pictures.pixels(some))
            self._table[torch.from_numpy(some)] = model.task_encoder.set_encoder(prepared)
        self._known[missing] = True
        return self._table[torch.from_numpy(numbers)]


def embed(model: CnapsModel, network: FoldedNetwork, pictures: Pictures, numbers: IntArray) -> Tensor:
    """Features N x D of some pictures, read a part at a time."""
    features = torch.empty(len(numbers), model.backbone.info.width, dtype=model.dtype, device=model.device)
    for i in range(0, len(numbers), _READ):
        features[i : i + _READ] = model.embed_folded(pictures.pixels(numbers[i : i + _READ]), network)
    return features
