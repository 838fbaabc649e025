"""Linear discriminant analysis with one shrunk covariance for all classes, from moments."""

from __future__ import annotations

from torch import Tensor

from cl_cnaps.continual.baselines.closed_form_settings import Shrinkage
from cl_cnaps.continual.baselines.moments import Moments, solve_positive


def oas_shrinkage(trace: float, squared_norm: float, n: int, width: int) -> float:
    """Return the weight of the identity that oracle approximating shrinkage gives (Chen et al. 2010, eq. 23).

    As `sklearn.covariance.oas` on centred vectors, but from the covariance alone, which is what a stream keeps.

    Args:
        trace: of the covariance S.
        squared_norm: the trace of S S.
        n: vectors that S was made of.
        width: numbers in each.
    """
    distance = (n + 1) * (squared_norm - trace**2 / width)
    return 1.0 if distance <= 0 else min(1.0, (squared_norm + trace**2) / distance)


def discriminant_weights(moments: Moments, shrinkage: Shrinkage) -> tuple[Tensor, Tensor]:
    """Return weights L m_c (M x C) and biases -m_c^T L m_c / 2 (C); L is the inverse of the shrunk covariance."""
    means_CM = moments.means_CM
    weights_MC = _primal(moments, shrinkage) if moments.gram_MM is not None else _dual(moments, shrinkage)
    return weights_MC, -(means_CM * weights_MC.T).sum(dim=1) / 2


def _parts(scatter: Tensor, n: int, width: int, shrinkage: Shrinkage) -> tuple[float, float]:
    """Return a and b of the covariance a X^T X + b I, from X^T X or X X^T, which share trace and norm."""
    if shrinkage == "identity":
        return 1 / n, 1.0
    trace = float(scatter.diagonal().sum()) / n
    weight = oas_shrinkage(trace, float(scatter.square().sum()) / n**2, n, width)
    # One image a class has no variance: any multiple of the identity then gives the nearest mean.
    return (1 - weight) / n, weight * trace / width if trace > 0 else 1.0


def _primal(moments: Moments, shrinkage: Shrinkage) -> Tensor:
    assert moments.gram_MM is not None
    sums, means = moments.sums_CM, moments.means_CM
    scatter_MM = moments.gram_MM - means.T @ sums
    a, b = _parts(scatter_MM, moments.n, moments.width, shrinkage)
    return solve_positive(a * scatter_MM, b, means.T)


def _dual(moments: Moments, shrinkage: Shrinkage) -> Tensor:
    """(a X^T X + b I)^-1 = (I - X^T (X X^T + b/a I)^-1 X) / b, with X the rows less their class means."""
    one_hot_NC = moments.one_hot_NC()
    average_CN = (one_hot_NC / moments.counts_C.clamp(min=1)).T

    def centred(values_NK: Tensor) -> Tensor:
        return values_NK - one_hot_NC @ (average_CN @ values_NK)

    products_NN = centred(centred(moments.products_NN).T)
    a, b = _parts(products_NN, moments.n, moments.width, shrinkage)
    means_MC = moments.means_CM.T
    if a == 0:
        return means_MC / b
    along_NC = centred(moments.products_NN @ average_CN.T)
    duals_NC = solve_positive(products_NN, b / a, along_NC)
    return (means_MC - moments.rows_NM.double().T @ centred(duals_NC)) / b
