"""Features of a run's images, given what is labelled: looked up where they never change, else embedded anew.

With adaptation every new label changes the task encoding, so FiLM and all features. That is the one cost of a round
that cannot be shared: images are decoded once, into a packed file, and what the set encoder makes of an image is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.active.labelled import Labelled
from cl_cnaps.active.pictures import Pictures
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.models.cnaps import CnapsModel
from cl_cnaps.models.encoders import ENCODING_WIDTH
from cl_cnaps.models.film import Film, FoldedNetwork

_READ = 512
"""Images read from their file at a time: a multiple of what goes through the network at once."""
_ENCODE = 64
"""Images that the set encoder gets at a time."""


class GivenLabels(Protocol):
    """Features under some labels: of the labelled images, N x D, and of those to be classified, in one space."""

    def with_tests(self) -> tuple[Tensor, Tensor]:
        """Features of the labelled and of all test images."""

    def with_candidates(self, unlabelled: IntArray) -> tuple[Tensor, Tensor]:
        """Features of the labelled images and of some that are not."""


class Features(Protocol):
    """Where a learner gets its features from."""

    def given(self, labelled: Labelled) -> GivenLabels:
        """The features under these labels."""


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

    def given(self, labelled: Labelled) -> GivenLabels:
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

    def given(self, labelled: Labelled) -> GivenLabels:
        """The features under these labels; adapting and embedding wait until they are asked for."""
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
