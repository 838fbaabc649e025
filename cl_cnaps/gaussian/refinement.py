"""Soft k-means refinement of the class parameters with unlabelled queries (Algorithm alg:iterative).

It runs in float64: an error of 0.01 in a logit of 10,000, all that float32 can promise, would be one of 1 % in a
responsibility.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.checks import check_features, check_finite
from cl_cnaps.gaussian.distances import class_logits
from cl_cnaps.gaussian.gaussians import Normaliser, estimate
from cl_cnaps.gaussian.statistics import Statistics

Unbounded = Literal["unbounded"]
MixtureRule = Literal["mahalanobis", "gmm"]
"""Whose responsibilities the queries have."""

_NEVER_SETTLES = 1000
"""Without a bound, refits at the most: nothing proves that assignments cannot go round in a circle."""


@dataclass(frozen=True)
class Refinement:
    """What the loop arrived at."""

    logits_QK: Tensor
    steps: int
    """How often the class parameters were estimated anew with the queries in."""


Refit = Callable[[Tensor], Tensor]
"""One round: from responsibilities Q x K to logits Q x K."""


class Rounds:
    """The logits after each round of the loop, made when they are first asked for: all bounds share them."""

    def __init__(
        self,
        first_QK: Tensor,
        prepare: Callable[[], Refit] | None,
        dtype: torch.dtype,
        temperature: float | Tensor = 1.0,
    ) -> None:
        """Begin with the logits before any refit.

        `prepare` makes what refits, if a round is asked for; without it there are no queries, and no rounds.
        `temperature` divides logits before they become responsibilities.
        """
        self._logits = [first_QK]
        self._prepare = prepare
        self._refit: Refit | None = None
        self._dtype = dtype
        self._temperature = temperature

    def end(self, min_steps: int, max_steps: int | Unbounded) -> Refinement:
        """The loop's result: it ends when no query's most probable class changes, within these bounds."""
        most = max(_NEVER_SETTLES, min_steps) if max_steps == "unbounded" else max_steps
        if not 0 <= min_steps <= most:
            raise BadInputError(
                f"refinement needs 0 <= min_steps <= max_steps, got {min_steps} and {max_steps}"
            )
        step = 0
        while self._prepare is not None and step < most:
            step += 1
            same = torch.equal(self._after(step - 1).argmax(dim=1), self._after(step).argmax(dim=1))
            if step >= min_steps and same:
                break
        return Refinement(check_finite(self._after(step), "the refined distance").to(self._dtype), step)

    def _after(self, steps: int) -> Tensor:
        while len(self._logits) <= steps:
            assert self._prepare is not None
            self._refit = self._refit or self._prepare()
            self._logits.append(self._refit(torch.softmax(self._logits[-1] / self._temperature, dim=1)))
        return self._logits[steps]


def refine(
    support: Statistics,
    query_QD: Tensor,
    *,
    min_steps: int = 2,
    max_steps: int | Unbounded = 4,
    normaliser: Normaliser = "paper",
    beta: float = 1.0,
    rule: MixtureRule = "mahalanobis",
    initial_logits_QK: Tensor | None = None,
    temperature: float | Tensor = 1.0,
) -> Refinement:
    """Logits of the queries after refinement; the inputs are left as they are.

    Fit on the support; then repeat {responsibilities of the queries; refit on support and queries} until no query's
    most probable class changes, at least `min_steps` and at most `max_steps` times.

    Args:
        support: statistics of the labelled images (the images themselves are not needed).
        query_QD: features of the whole query set.
        min_steps: refits that are made even when no assignment changes.
        max_steps: refits at the most; 0 gives the support-only logits; unbounded goes on until nothing changes.
        normaliser: paper, or released-transductive.
        beta: weight of the identity in every covariance.
        rule: mahalanobis, or gmm for the responsibilities of a Gaussian mixture (GMM-EM).
        initial_logits_QK: logits to start from in place of the support-only fit, for stored classes whose Q_k
            was merged over several tasks.
        temperature: divides logits before they become responsibilities: 1 for the raw ones, a model's own for the
            probabilities that it reports.
    """
    rounds = refinement_rounds(
        support,
        query_QD,
        normaliser=normaliser,
        beta=beta,
        rule=rule,
        initial_logits_QK=initial_logits_QK,
        temperature=temperature,
    )
    return rounds.end(min_steps, max_steps)


def refinement_rounds(
    support: Statistics,
    query_QD: Tensor,
    *,
    normaliser: Normaliser = "paper",
    beta: float = 1.0,
    rule: MixtureRule = "mahalanobis",
    initial_logits_QK: Tensor | None = None,
    temperature: float | Tensor = 1.0,
) -> Rounds:
    """The rounds of `refine`, to be ended under several bounds; the arguments are the same."""
    if normaliser == "released-simple":
        raise BadInputError("refinement is defined for the normalisers paper and released-transductive")
    check_features(query_QD, "query", support.width)
    dtype = query_QD.dtype
    query_QD = query_QD.to(torch.float64)
    if initial_logits_QK is None:
        logits_QK = class_logits(estimate(support, normaliser, beta), query_QD, rule)
    else:
        logits_QK = _checked(initial_logits_QK, query_QD.shape[0], support.n_classes).to(torch.float64)
    if query_QD.shape[0] == 0:
        return Rounds(logits_QK, None, dtype, temperature)
    differentiable = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in (query_QD, logits_QK, support.means_KD, support.rows_RD)
    )
    from cl_cnaps.gaussian.refits import DenseRefit, SpectralRefit  # needed only where queries refine

    kind = DenseRefit if differentiable else SpectralRefit
    prepare = partial(kind.build, support, query_QD, normaliser, beta, mixture=rule == "gmm")
    return Rounds(logits_QK, prepare, dtype, temperature)


def _checked(logits_QK: Tensor, n_queries: int, n_classes: int) -> Tensor:
    if logits_QK.shape != (n_queries, n_classes):
        raise BadInputError(
            f"initial logits must be queries x classes, {n_queries} x {n_classes}, got {tuple(logits_QK.shape)}"
        )
    if not bool(torch.isfinite(logits_QK).all()):
        raise BadInputError("initial logits contain NaN or Inf")
    return logits_QK
