"""Avalanche without its chatter."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_KNOWN = (
    # On import: GEM's solver, which no baseline here uses.
    "no QP solver found",
    # The evaluator is left empty on purpose: accuracies are measured outside.
    "No loggers specified",
    # Avalanche's FeCAM copies a tensor with torch.tensor.
    "To copy construct from a tensor",
)


@contextmanager
def quiet_avalanche() -> Iterator[None]:
    """Silence the warnings Avalanche is known to give, and no others, while the block runs."""
    with warnings.catch_warnings():
        for message in _KNOWN:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        yield
