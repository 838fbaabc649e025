"""Avalanche draws from the global random states; here they are lent to it and put back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_randomness(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Inside, the global generators are functions of (seed, step); outside, nothing has happened to them.

    Args:
        seed: The learner's seed.
        step: The task about to be learned, or -1 while weights are first drawn.
        device: Where the work is done.
    """
    mixed = int(np.random.SeedSequence([seed, step + 1]).generate_state(1)[0])
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            random.seed(mixed)
            np.random.seed(mixed)
            torch.manual_seed(mixed)
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
