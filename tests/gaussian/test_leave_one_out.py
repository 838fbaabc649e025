"""Distances of left-out support images against fits that never saw them."""

from __future__ import annotations

import pytest
import torch

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import estimate, support_statistics
from cl_cnaps.gaussian.leave_one_out import leave_one_out_distances
from cl_cnaps.gaussian.mahalanobis import squared_distances


def fitted_anew(features: torch.Tensor, labels: torch.Tensor, n_classes: int, beta: float) -> torch.Tensor:
    """The slow twin: one fit for each image."""
    found = torch.full((len(features), n_classes), torch.inf, dtype=torch.float64)
    for i in range(len(features)):
        rest = torch.arange(len(features)) != i
        there, position = torch.unique(labels[rest], return_inverse=True)
        gaussians = estimate(support_statistics(features[rest], position, len(there)), "paper", beta)
        found[i, there] = squared_distances(gaussians, features[i : i + 1])[0]
    return found


@pytest.mark.parametrize(
    ("counts", "width"), [((5, 5, 5), 40), ((1, 2, 7), 12), ((30, 25), 6), ((3,), 9), ((1, 1), 4)]
)
@pytest.mark.parametrize("beta", [1.0, 0.05])
def test_they_are_those_of_a_fit_without_the_image(counts: tuple[int, ...], width: int, beta: float) -> None:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    features = torch.randn(len(labels), width, generator=generator, dtype=torch.float64) + 2 * labels[:, None]
    expected = fitted_anew(features, labels, len(counts), beta)
    statistics = support_statistics(features, labels, len(counts))
    found = leave_one_out_distances(statistics, features, labels, beta)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    some = torch.tensor([len(labels) - 1, 0])
    torch.testing.assert_close(
        leave_one_out_distances(statistics.compressed(), features[some], labels[some], beta),
        expected[some],
        rtol=1e-8,
        atol=1e-8,
    )


def test_one_image_cannot_be_left_out() -> None:
    one, label = torch.zeros(1, 3), torch.tensor([0])
    with pytest.raises(BadInputError, match="two or more"):
        leave_one_out_distances(support_statistics(one, label, 1), one, label)
