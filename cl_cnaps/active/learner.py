"""A model with some labels: its answers on test images and on those it might have labelled; and the loop of rounds.

Query sets. The logits of a transductive model depend on the queries that it is given together. They are therefore given
in sets that are fixed when a run begins: the test set in one, the pool in another, each cut, in the run's shuffled
order, into equal parts if it is larger than `query_set`. An image that gets its label leaves its set. Neither the size
of batches nor what a strategy looks at changes a set. Other models give the same answers in any sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.active.acquisition import Candidates, Strategy, best
from cl_cnaps.active.features import Annotator, Features, Labelled, Scorer
from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.errors import BadInputError, ClCnapsError
from cl_cnaps.models.adaptation import Head
from cl_cnaps.models.cnaps import CnapsModel

QUERY_SET = 1000
"""Most queries that a transductive model is given together, unless another number is given."""


def set_of_each(count: int, query_set: int) -> IntArray:
    """Return the query set of every image of a shuffled order: as few sets as can be, all of one size."""
    sets = max(1, -(-count // query_set))
    return np.repeat(np.arange(sets), [len(part) for part in np.array_split(np.arange(count), sets)])


@dataclass(frozen=True)
class Learner:
    """One model on one run's images: with labels it becomes a `Fitted`."""

    model: CnapsModel
    features: Features
    way: int
    candidate_sets_S: IntArray
    """The query set of every image that may be labelled."""
    test_sets_T: IntArray

    def fit(self, labelled: Labelled) -> Fitted:
        """The model with these labels; nothing of it is kept here."""
        return Fitted(self, labelled)


class Fitted:
    """A learner with some labels; an answer is computed when it is first used, and once."""

    def __init__(self, learner: Learner, labelled: Labelled) -> None:
        self.labelled = labelled
        self._learner = learner
        self._given = learner.features.given(labelled)

    @cached_property
    def predictions(self) -> IntArray:
        """The most probable class of every test image."""
        learner = self._learner
        labelled_ND, tests_TD = self._given.with_tests()
        logits_TK = self._answers(learner.model.logits, labelled_ND, tests_TD, learner.test_sets_T)
        predicted: IntArray = logits_TK.argmax(dim=1).cpu().numpy()
        return predicted

    @cached_property
    def unlabelled(self) -> IntArray:
        """Numbers of the images that have no label yet."""
        return self.labelled.others(len(self._learner.candidate_sets_S))

    @cached_property
    def features(self) -> tuple[Tensor, Tensor]:
        """Features of the labelled images, N x D, and of those that are not, P x D."""
        return self._given.with_candidates(self.unlabelled)

    @cached_property
    def probabilities_PK(self) -> Tensor:
        """Class probabilities of the unlabelled images, by the model's temperature; float64."""
        learner = self._learner
        sets_P = learner.candidate_sets_S[self.unlabelled]
        return self._answers(learner.model.probabilities, *self.features, sets_P).to(torch.float64)

    @torch.no_grad()
    def _answers(
        self, ask: Callable[[Head, Tensor], Tensor], labelled_ND: Tensor, query_QD: Tensor, sets_Q: IntArray
    ) -> Tensor:
        """Logits or probabilities Q x K, each query's given the others of its set."""
        model, way = self._learner.model, self._learner.way
        labels = torch.from_numpy(self.labelled.labels).to(labelled_ND.device)
        head = model.fit(labelled_ND, labels, way)
        answers_QK = query_QD.new_empty(len(query_QD), way)
        for number in np.unique(sets_Q):
            mine = torch.from_numpy(sets_Q == number).to(query_QD.device)
            answers_QK[mine] = ask(head, query_QD[mine])
        if not bool(torch.isfinite(answers_QK).all()):
            raise ClCnapsError(
                f"the model {model.config.model} gave answers that are not finite with {len(self.labelled)} labels"
            )
        return answers_QK


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
        learner: sees images and the labels that it was given.
        annotator: knows the labels that may be requested.
        scorer: knows those of the test images.
        initial: the images below this number are labelled from the start.
        strategies: by name.
        rounds: how often labels are requested.
        per_round: how many at a time.
        generator: a fresh generator for what is random in a round.
        progress: called after every round.
    """
    if annotator.count - initial < rounds * per_round:
        raise BadInputError(
            f"{rounds} rounds of {per_round} labels need more than the {annotator.count - initial} images without one"
        )
    start = learner.fit(annotator.label(np.arange(initial)))
    curves = {}
    for name, strategy in strategies.items():
        fitted = start
        points = [Point(len(fitted.labelled), scorer.accuracy(fitted.predictions))]
        for number in range(rounds):
            candidates = Candidates(fitted, generator(number))
            chosen = best(strategy(candidates), candidates.count, per_round)
            more: Labelled = annotator.label(fitted.unlabelled[chosen])
            fitted = learner.fit(fitted.labelled.plus(more))
            points.append(Point(len(fitted.labelled), scorer.accuracy(fitted.predictions)))
            progress()
        curves[name] = points
    return curves
