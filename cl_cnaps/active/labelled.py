"""Who knows a label when: what has been labelled, who is asked for more, and who scores.

Images go by their numbers: those that may be labelled are 0, 1, ..., the first of them being labelled from the start;
test images have numbers of their own. A learner gets numbers, pixels and the labels in `Labelled`. The other labels of
the first kind are with the `Annotator`, those of test images with the `Scorer`, and neither hands them out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.errors import BadInputError


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
    """Knows the classes of the images that may be labelled, and tells those that are asked for."""

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
    """Knows the classes of the test images, and tells nothing but how many predictions are right."""

    def __init__(self, labels: IntArray) -> None:
        self._labels = labels

    def accuracy(self, predictions: IntArray) -> float:
        """The share of test images whose predicted class is theirs."""
        if predictions.shape != self._labels.shape:
            raise BadInputError(f"{len(self._labels)} test images got {len(predictions)} predictions")
        return float((predictions == self._labels).mean())
