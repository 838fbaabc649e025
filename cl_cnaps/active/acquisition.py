"""Acquisition strategies: which unlabelled images to have labelled next.

A strategy is one small function. It gives every unlabelled image a score, and the images of the largest scores are
labelled; equal scores are decided by the seed. To add one, write it and register it:

    from cl_cnaps.active.acquisition import strategy

    @strategy("margin")
    def margin(candidates):
        top_P2 = candidates.probabilities_PK.topk(2, dim=1).values
        return top_P2[:, 1] - top_P2[:, 0]

What it does not ask for is not computed: images whose probabilities and features nobody looks at are not embedded.

Legend: P unlabelled images, K classes, N labelled images, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cl_cnaps.episodes.episode import IntArray
from cl_cnaps.errors import BadInputError

if TYPE_CHECKING:
    from cl_cnaps.active.learner import Fitted


@dataclass(frozen=True)
class Candidates:
    """All that a strategy may look at: the unlabelled images as the model sees them now, and the labelled ones."""

    fitted: Fitted
    generator: np.random.Generator
    """For what is to be random: a function of the seed, the run and the round."""

    @property
    def count(self) -> int:
        """P."""
        return len(self.fitted.unlabelled)

    @property
    def probabilities_PK(self) -> Tensor:
        """Class probabilities of the unlabelled images, float64."""
        return self.fitted.probabilities_PK

    @property
    def features_PD(self) -> Tensor:
        """Features of the unlabelled images."""
        return self.fitted.features[1]

    @property
    def labelled_features_ND(self) -> Tensor:
        """Features of the labelled images, under the same adaptation."""
        return self.fitted.features[0]

    @property
    def labels_N(self) -> Tensor:
        """Classes of the labelled images."""
        return torch.from_numpy(self.fitted.labelled.labels)


Strategy = Callable[[Candidates], Tensor]
"""Scores of the unlabelled images, P; the largest are labelled."""

STRATEGIES: dict[str, Strategy] = {}
"""By name, in the order in which tables and legends have them."""


def strategy(name: str) -> Callable[[Strategy], Strategy]:
    """Register a strategy under a name, for `run` and the command line."""

    def register(function: Strategy) -> Strategy:
        if name in STRATEGIES:
            raise BadInputError(f"there is a strategy called {name!r} already")
        STRATEGIES[name] = function
        return function

    return register


@strategy("random")
def random(candidates: Candidates) -> Tensor:
    """Any: what the others are compared with."""
    return torch.from_numpy(candidates.generator.random(candidates.count))


@strategy("entropy")
def entropy(candidates: Candidates) -> Tensor:
    """The largest predictive entropy, -sum_k p_k log p_k (Cohn et al. 1996)."""
    each_PK: Tensor = torch.special.entr(candidates.probabilities_PK)
    return each_PK.sum(dim=1)


@strategy("variation-ratio")
def variation_ratio(candidates: Candidates) -> Tensor:
    """The smallest probability of the most probable class (Cohn et al. 1996)."""
    return 1 - candidates.probabilities_PK.max(dim=1).values


def chosen_strategies(names: Sequence[str]) -> dict[str, Strategy]:
    """Strategies by their names; refuses names that are not known or come twice."""
    if not names:
        raise BadInputError(f"no strategy was given; there are {', '.join(STRATEGIES)}")
    for name in names:
        if name not in STRATEGIES:
            raise BadInputError(f"unknown strategy {name!r}; there are {', '.join(STRATEGIES)}")
        if names.count(name) > 1:
            raise BadInputError(f"the strategy {name!r} is given twice")
    return {name: STRATEGIES[name] for name in names}


def best(scores_P: Tensor, candidates: int, count: int) -> IntArray:
    """The positions of the `count` largest scores, best first.

    Equal scores go by position. Positions are in an order that the seed has shuffled, so the seed decides ties.
    """
    if not isinstance(scores_P, Tensor):
        raise BadInputError(f"a strategy must give its scores as a tensor, not as {type(scores_P).__name__}")
    if scores_P.shape != (candidates,):
        raise BadInputError(
            f"a strategy must give one score to each of {candidates} images, not {tuple(scores_P.shape)}"
        )
    scores = scores_P.detach().cpu().numpy()
    if np.isnan(scores).any():
        raise BadInputError("a strategy gave scores that are not numbers")
    return np.argsort(-scores, kind="stable")[:count].astype(np.int64)
