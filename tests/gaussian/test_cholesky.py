"""The fast forms of products and triangular systems are the plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian import cholesky
from cl_cnaps.gaussian.checks import check_features
from cl_cnaps.gaussian.cholesky import factorise, gram, inverses, solve_lower, solve_rows


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("width", [1, 7, 8, 9, 20])
def test_a_gram_in_strips_is_the_product(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholesky, "_STRIP", 8)
    rows = noise(3 * width, width)
    found = gram(rows)
    torch.testing.assert_close(found, found.T)
    torch.testing.assert_close(found, rows.T @ rows)


def test_a_gram_of_many_rows_has_the_gradient_of_the_product() -> None:
    rows = noise(12, 4).requires_grad_()
    assert torch.autograd.gradcheck(gram, (rows,))


def test_rows_and_inverses_solve_what_columns_do() -> None:
    rows = noise(3, 9, 5)
    factors = factorise(rows.mT @ rows + torch.eye(5, dtype=rows.dtype))
    right = noise(5, 11)
    expected = solve_lower(factors, right.expand(3, 5, 11))
    torch.testing.assert_close(inverses(factors) @ right, expected)
    torch.testing.assert_close(solve_rows(factors[0], right.T).T, expected[0])


def test_finite_features_whose_sum_overflows_are_taken() -> None:
    largest = torch.finfo(torch.float32).max
    check_features(torch.full((2, 3), largest), "query")
    for wrong in (float("nan"), float("inf"), -float("inf")):
        features = torch.full((2, 3), largest)
        features[1, 0] = wrong
        with pytest.raises(BadInputError, match="NaN or Inf, first in row 1"):
            check_features(features, "query")
