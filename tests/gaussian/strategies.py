"""Random classification tasks for property tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st


@dataclass(frozen=True)
class RandomTask:
    """A support set with unequal shots and a query set, as float64 arrays."""

    support: np.ndarray
    labels: np.ndarray
    n_classes: int
    query: np.ndarray

    def tensors(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            torch.from_numpy(self.support).to(dtype),
            torch.from_numpy(self.labels),
            torch.from_numpy(self.query).to(dtype),
        )


@st.composite
def tasks(draw: st.DrawFn, min_queries: int = 1) -> RandomTask:
    """Any way, shot and width: one-shot classes, one class, duplicates, more or fewer images than dimensions."""
    n_classes = draw(st.integers(1, 6))
    shots = draw(st.lists(st.integers(1, 12), min_size=n_classes, max_size=n_classes))
    width = draw(st.sampled_from([1, 2, 3, 8, 20, 64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.1, 1.0, 5.0]))
    centres = rng.standard_normal((n_classes, width)) * 2
    labels = np.repeat(np.arange(n_classes), shots)
    support = (rng.standard_normal((len(labels), width)) + centres[labels]) * scale + rng.standard_normal(
        width
    )
    if draw(st.booleans()):  # duplicated images
        same = rng.integers(0, len(labels), len(labels))
        support = np.where(rng.random(len(labels))[:, None] < 0.5, support[same], support)
    order = rng.permutation(len(labels))
    query = rng.standard_normal((draw(st.integers(min_queries, 10)), width)) * 2 * scale
    # Rounded to float32 once, so that both precisions see the same numbers.
    return RandomTask(
        support[order].astype(np.float32).astype(np.float64),
        labels[order],
        n_classes,
        query.astype(np.float32).astype(np.float64),
    )
