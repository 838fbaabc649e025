"""How much is labelled, when and how often: the paper's protocols, and short ones for a machine without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cl_cnaps.errors import BadInputError


@dataclass(frozen=True)
class Protocol:
    """Labels to start with, labels a round, rounds and runs; images of each class.

    A curve has `rounds` + 1 points: the first is measured before any label is asked for.
    """

    initial: int = 5
    """Labelled images of each class at the start."""
    per_round: int = 25
    """Labels asked for at a time."""
    rounds: int = 5
    runs: int = 4
    """Each with new initial labels, pool and test set."""
    pool: int | None = None
    """Unlabelled images of each class; None for all that are left."""
    test: int | None = None
    """Test images of each class; None for all."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise BadInputError(f"{name} is {value}; 1 is the least")

    def changed(self, given: Mapping[str, Any]) -> Protocol:
        """With other numbers where some are given; None stands for not given."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def fitting(self, classes: int) -> Protocol:
        """With no more rounds than a pool of so many classes has labels for."""
        if self.pool is None:
            return self
        return replace(self, rounds=max(1, min(self.rounds, classes * self.pool // self.per_round)))


PAPER: Mapping[str, Protocol] = {
    "cifar10": Protocol(initial=5, per_round=25, rounds=29, runs=10, pool=None, test=None),
    "omniglot": Protocol(initial=5, per_round=1, rounds=29, runs=30, pool=10, test=5),
}
"""The paper's (fig:active-learning-figure): curves of 30 points."""

SHORT: Mapping[str, Protocol] = {
    "cifar10": Protocol(initial=5, per_round=25, rounds=5, runs=4, pool=50, test=50),
    "omniglot": Protocol(initial=5, per_round=1, rounds=9, runs=4, pool=10, test=5),
}
"""The paper's, cut down to what two CPU cores do in a few minutes with adapted features."""

FIGURE_ALPHABETS = ("Angelic", "Atemayar_Qelisayer")
"""Those of Omniglot's evaluation set that the paper shows in the figure and not in the appendix; the short default."""

MOST_IMAGES = 50
"""Of each class in the pool, and in the test set, where neither a protocol nor a person gives a number."""


def protocol_for_any(
    classes: int, fewest: int, fewest_test: int | None, given: Mapping[str, Any] | None = None
) -> Protocol:
    """A short protocol for a source that the paper does not have, whose smallest class has `fewest` images.

    `fewest_test` is the same of a test split; without one the test images are taken from the same images. Numbers that
    are `given` stay, and the others leave room for them.
    """
    given = {name: value for name, value in (given or {}).items() if value is not None}
    shared_test = given.get("test", 1) if fewest_test is None else 0
    spare = fewest - shared_test - given.get("pool", 1)
    initial = given.get("initial", max(1, min(5, fewest // 4, spare)))
    rest = fewest - initial
    if fewest_test is None:
        test = given.get("test", max(1, min(MOST_IMAGES, rest // 3, rest - given.get("pool", 1))))
        rest -= test
    else:
        test = min(MOST_IMAGES, fewest_test)
    usual = Protocol(initial, max(1, classes // 2), 9, 4, max(1, min(MOST_IMAGES, rest)), test)
    return usual.changed(given)
