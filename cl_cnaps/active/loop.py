"""The loop: measure, let a strategy choose, have the images labelled, adapt anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cl_cnaps.active.acquisition import Strategy, best
from cl_cnaps.active.labelled import Annotator, Labelled, Scorer
from cl_cnaps.active.learner import Learner, UnlabelledImages
from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class Point:
    """How good a learner is with so many labels."""

    labels: int
    accuracy: float


def learning_curves(
    learner: Learner,
    annotator: Annotator,
    scorer: Scorer,
    *,
    initial: int,
    strategies: Mapping[str, Strategy],
    rounds: int,
    per_round: int,
    generator: Callable[[int], np.random.Generator],
    progress: Callable[[], None] = lambda: None,
) -> dict[str, list[Point]]:
    """A curve of `rounds` + 1 points for every strategy; all start from the same labels, which are learned once.

    Args:
        learner: sees images and the labels that it was told.
        annotator: knows the labels that may be asked for.
        scorer: knows those of the test images.
        initial: the images below this number are labelled from the start.
        strategies: by name.
        rounds: how often labels are asked for.
        per_round: how many at a time.
        generator: a fresh generator for what is random in a round.
        progress: called after every round.
    """
    if annotator.count - initial < rounds * per_round:
        raise BadInputError(
            f"{rounds} rounds of {per_round} labels were asked for, and {annotator.count - initial} images have none"
        )
    start = learner.fit(annotator.label(np.arange(initial)))
    curves = {}
    for name, strategy in strategies.items():
        fitted = start
        points = [Point(len(fitted.labelled), scorer.accuracy(fitted.predictions))]
        for number in range(rounds):
            candidates = UnlabelledImages(fitted, generator(number))
            chosen = best(strategy(candidates), candidates.count, per_round)
            more: Labelled = annotator.label(fitted.unlabelled[chosen])
            fitted = learner.fit(fitted.labelled.plus(more))
            points.append(Point(len(fitted.labelled), scorer.accuracy(fitted.predictions)))
            progress()
        curves[name] = points
    return curves
