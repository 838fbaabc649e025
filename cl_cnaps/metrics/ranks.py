"""Average rank over data sets, as in `tab:results:meta-dataset-2`.

A method's rank on a data set is one more than the number of methods that are significantly better there: better by
more than the root of the sum of the squares of the two 95 % intervals. The paper does not say how it treats
differences within the intervals; of the usual ways, this is the one whose ranks come nearest to those it prints.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

Score = tuple[float, float]
"""Mean and half of the 95 % interval, in the same unit for all methods."""

Scores = Mapping[str, Mapping[str, Score]]
"""Method -> data set -> score; a method may lack some data sets."""


def rank(method: str, data_set: str, scores: Scores) -> int:
    """The rank of one method among those that have a score on the data set; 1 is best."""
    mean, half = scores[method][data_set]
    rivals = [scores[m][data_set] for m in scores if m != method and data_set in scores[m]]
    return 1 + sum(other - mean > math.hypot(half, other_half) for other, other_half in rivals)


def average_rank(method: str, data_sets: Collection[str], scores: Scores) -> float | None:
    """The mean rank over those of the data sets on which the method has a score; None if it has none."""
    ranks = [rank(method, data_set, scores) for data_set in data_sets if data_set in scores[method]]
    return sum(ranks) / len(ranks) if ranks else None
