"""What each support image's distances would be, had it not been there: exact, without fitting anything anew.

Leaving image z of class c out takes a rank-one part off the scatter of its class and off that of the task:

    S_c - n_c / (n_c - 1) r r^T,   r = z - mu_c        S - n / (n - 1) t t^T,   t = z - mu

The n's in front of both change too, but alike for all images of a class. So each class has two matrices that are
factored once: A_k, as the images of other classes leave Q_k, and A'_k, as its own do; a distance under Q_k is one under
A_k or A'_k and the correction of a rank-one or rank-two downdate (Sherman, Morrison and Woodbury).
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_cnaps.errors import BadInputError
from cl_cnaps.gaussian.cholesky import PrecisionError, factorise, solve_lower
from cl_cnaps.gaussian.statistics import Statistics


@torch.no_grad()
def leave_one_out_distances(
    statistics: Statistics, features_MD: Tensor, labels_M: Tensor, beta: float = 1.0
) -> Tensor:
    """Squared Mahalanobis distances M x K of images, each to the classes as they would be without it.

    Covariances are the paper's (eq. simple-cnaps-eq:mean-cov-calculation; 1/n_k and 1/n). Without its only image there
    is no class: the distance is infinity.

    Args:
        statistics: of K classes; those images are among them.
        features_MD: their feature vectors.
        labels_M: class of each, in 0..K-1.
        beta: weight of the identity in every covariance.
    """
    total = round(float(statistics.total))
    if total < 2:
        raise BadInputError("leaving the only image out leaves nothing: two or more are needed")
    labels_M = labels_M.to(features_MD.device, torch.int64)
    counts_K, rows_RD = statistics.counts_K.double(), statistics.restored().rows_RD.double()
    mean_D = (counts_K / total) @ statistics.means_KD.double()
    means_KR, rows_RR, query_MR = _coordinates(
        statistics.means_KD.double() - mean_D, rows_RD, features_MD.double() - mean_D
    )
    scatter_RR = rows_RR.T @ rows_RR + (counts_K[:, None] * means_KR).T @ means_KR
    identity_RR = torch.eye(len(scatter_RR), dtype=torch.float64, device=scatter_RR.device)
    distances_MK = query_MR.new_empty(len(query_MR), statistics.n_classes)
    for k, mean_R in enumerate(means_KR):
        own_PR, count = rows_RR[statistics.row_class_R == k], round(float(counts_K[k]))
        class_RR = own_PR.T @ own_PR
        is_own = labels_M == k

        def factor(shots: int, class_RR: Tensor = class_RR) -> Tensor:
            """A_k or A'_k, of a class with so many images left."""
            matrix_RR = class_RR + scatter_RR / (total - 1)
            return _factor(matrix_RR / (shots + 1) + beta * identity_RR)

        t_MR = query_MR[~is_own]
        if len(t_MR):
            weight = total / (total - 1) ** 2 / (count + 1)
            distances_MK[~is_own, k] = _downdated(factor(count), t_MR - mean_R, (weight**0.5 * t_MR,))
        t_MR = query_MR[is_own]
        if len(t_MR) and count == 1:
            distances_MK[is_own, k] = torch.inf
        elif len(t_MR):
            r_MR, weight = t_MR - mean_R, total / (total - 1) ** 2 / count
            taken = ((count - 1) ** -0.5 * r_MR, weight**0.5 * t_MR)
            distances_MK[is_own, k] = _downdated(factor(count - 1), r_MR * count / (count - 1), taken)
    return distances_MK.clamp_min(0).to(torch.promote_types(features_MD.dtype, torch.float32))


def _coordinates(*parts: Tensor) -> tuple[Tensor, ...]:
    """The same vectors in coordinates of their span: distances within it, under A = beta I + ..., stay as they are."""
    whole_ND = torch.cat(parts)
    if whole_ND.shape[0] < whole_ND.shape[1]:
        factor: Tensor = torch.linalg.qr(whole_ND.T, mode="r").R
        whole_ND = factor.T
    return torch.split(whole_ND, [len(part) for part in parts])


def _factor(matrix_RR: Tensor) -> Tensor:
    try:
        return factorise(matrix_RR)
    except PrecisionError as error:
        raise BadInputError(
            "the class covariances cannot be inverted: variances are too large against beta; scale the features down"
        ) from error


def _downdated(factor_RR: Tensor, y_MR: Tensor, taken: tuple[Tensor, ...]) -> Tensor:
    """y^T (A - U U^T)^-1 y of every row, where L L^T = A and the columns of U are the row's `taken`."""
    y_RM = solve_lower(factor_RR, y_MR.T)
    u_RM = torch.stack([solve_lower(factor_RR, part.T) for part in taken])
    projected_MU = torch.einsum("urm,rm->mu", u_RM, y_RM)
    gram_MUU = torch.einsum("urm,vrm->muv", u_RM, u_RM)
    inner_MUU = torch.eye(len(taken), dtype=gram_MUU.dtype, device=gram_MUU.device) - gram_MUU
    solved_MU: Tensor = torch.linalg.solve(inner_MUU, projected_MU)
    return y_RM.square().sum(dim=0) + (projected_MU * solved_MU).sum(dim=1)
