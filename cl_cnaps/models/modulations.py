"""Whether an adaptation adapts: the FiLM that a task's own encoding gives, beside FiLM that ignores the task.

own is what the model does. static is FiLM from one encoding averaged over all sources; swapped is FiLM from the
average encoding of a foreign source. frozen, beside them in tables, is no FiLM at all. A task encoder is alive when own
beats static and swapped costs accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from cl_cnaps.models.film import Film

Modulation = Literal["own", "static", "swapped"]
Column = Literal["own", "static", "swapped", "frozen"]
COLUMNS: tuple[Column, ...] = ("own", "static", "swapped", "frozen")


def substitute(kind: Modulation, own: Tensor, sources: Mapping[str, Tensor]) -> Tensor:
    """Return the encoding that FiLM is generated from, given a task's own and the mean encodings of some sources.

    The foreign source is the one whose mean encoding is farthest from the task's own.
    """
    if kind == "own":
        return own
    means_S64 = torch.stack(list(sources.values())).to(own)
    return means_S64.mean(dim=0) if kind == "static" else means_S64[(means_S64 - own).norm(dim=1).argmax()]


@torch.no_grad()
def film_distance(first: Film, second: Film) -> float:
    """Return the root mean square difference of two modulations, over all gammas and betas."""
    pairs = zip((*first.gammas, *first.betas), (*second.gammas, *second.betas), strict=True)
    squares = torch.cat([(a - b).flatten().double() for a, b in pairs]).square()
    return float(squares.mean().sqrt())
