"""Features of a run's images, given what is labelled: looked up where they never change, else embedded anew.

With adaptation every new label changes the task encoding, so FiLM and all features. That is the one cost of a round
that cannot be shared: images are decoded once, into a packed file, and what the set encoder makes of an image is kept.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.active.labelled import Labelled
from cl_cnaps.active.pictures import Pictures
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film
from cl_cnaps.models.folding import FoldedNetwork

_READ = 512
"""Images read from their file at a time: a multiple of what goes through the network at once."""
_ENCODE = 64
"""Images that the set encoder gets at a time."""


class Features(Protocol):
    """Where a learner gets its features from: labelled N x D, then those to be classified, in one space."""

    def with_tests(self, labelled: Labelled) -> tuple[Tensor, Tensor]:
        """Features of the labelled and of all test images."""

    def with_candidates(self, labelled: Labelled, unlabelled: IntArray) -> tuple[Tensor, Tensor]:
        """Features of the labelled images and of some that are not."""


class FrozenFeatures:
    """Features that depend on the image alone: S x D of those that may be labelled, T x D of test images."""

    def __init__(self, candidates_SD: Tensor, tests_TD: Tensor) -> None:
        self._candidates_SD = candidates_SD
        self._tests_TD = tests_TD

    @staticmethod
    def embedded(model: CnapsModel, film: Film, candidates: Pictures, tests: Pictures) -> FrozenFeatures:
        """Embed the images of a run, where there is no table of the features of all runs."""
        network = model.fold(film)
        every = (np.arange(len(pictures)) for pictures in (candidates, tests))
        parts = zip((candidates, tests), every, strict=True)
        return FrozenFeatures(*(embed(model, network, pictures, numbers) for pictures, numbers in parts))

    def with_tests(self, labelled: Labelled) -> tuple[Tensor, Tensor]:
        """Features of the labelled and of all test images."""
        return self._candidates_SD[torch.from_numpy(labelled.numbers)], self._tests_TD

    def with_candidates(self, labelled: Labelled, unlabelled: IntArray) -> tuple[Tensor, Tensor]:
        """Features of the labelled images and of some that are not."""
        numbers = (labelled.numbers, unlabelled)
        one, other = (self._candidates_SD[torch.from_numpy(some)] for some in numbers)
        return one, other


class AdaptedFeatures:
    """Features adapted by FiLM to the labelled images and, of a transductive encoding, to the unlabelled ones.

    The query set of such an encoding is the whole test set when test images are classified, and all images still
    unlabelled when those are.
    """

    def __init__(self, model: CnapsModel, candidates: Pictures, tests: Pictures) -> None:
        self._model = model
        self._candidates = _Encoded(model, candidates)
        self._tests = _Encoded(model, tests)
        self._last: tuple[Labelled, FoldedNetwork, Tensor] | None = None
        """Of an encoding without queries: what the labelled images led to."""

    def with_tests(self, labelled: Labelled) -> tuple[Tensor, Tensor]:
        """Features of the labelled and of all test images."""
        return self._features(labelled, self._tests, np.arange(len(self._tests.pictures)))

    def with_candidates(self, labelled: Labelled, unlabelled: IntArray) -> tuple[Tensor, Tensor]:
        """Features of the labelled images and of some that are not."""
        return self._features(labelled, self._candidates, unlabelled)

    def _features(self, labelled: Labelled, query: _Encoded, numbers: IntArray) -> tuple[Tensor, Tensor]:
        if self._model.uses_queries_to_encode:
            network, labelled_ND = self._adapted(labelled, query, numbers)
        else:
            if self._last is None or self._last[0] is not labelled:
                self._last = labelled, *self._adapted(labelled, None, numbers)
            _, network, labelled_ND = self._last
        return labelled_ND, embed(self._model, network, query.pictures, numbers)

    @torch.no_grad()
    def _adapted(
        self, labelled: Labelled, query: _Encoded | None, numbers: IntArray
    ) -> tuple[FoldedNetwork, Tensor]:
        """The network that the labelled images and these queries lead to, and the features of the former."""
        model, labels = self._model, torch.from_numpy(labelled.labels)
        if (
            model.task_encoder.set_encoder.config.batch_statistics
        ):  # what it makes of an image depends on the others
            pixels = None if query is None else query.pictures.pixels(numbers)
            encoding = model.encode(self._candidates.pictures.pixels(labelled.numbers), labels, pixels)
        else:
            query_Q64 = None if query is None else query.of(numbers)
            encoding = model.task_encoder.pool(self._candidates.of(labelled.numbers), labels, query_Q64)
        network = model.fold(model.adapt(encoding))
        return network, embed(model, network, self._candidates.pictures, labelled.numbers)


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
