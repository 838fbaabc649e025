"""How sure a fitted classifier may be: a temperature, and how far from its classes an image may lie.

Both are fitted on support images that are left out in turn; no others are needed. Mahalanobis distances grow with the
images of a class, because the task's covariance, with the differences between classes in it, is divided by n_k + 1,
and with the number of classes, which share these differences among them. So a temperature is a scale times the number
of images and classes (where classes are refined, of images and queries a class). The scale is what is fitted: it
carries over from left-out images, which see fewer, and to classes of one image, which cannot be left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_cnaps.continual.continual_cnaps import ContinualCnaps
from cl_cnaps.continual.memory import ClassKey
from cl_cnaps.gaussian import Statistics, support_statistics
from cl_cnaps.gaussian.leave_one_out import leave_one_out_distances
from cl_cnaps.models.cnaps import CnapsModel

_MAHALANOBIS = ("mahalanobis", "root-riemannian")
_MOST_LEFT_OUT = 1000  # images; more cost time and change nothing
_FOLDS = 5

# Scales that were best on validation classes, 2 to 10 with 1 to 10 images (benchmarks/calibration.py): priors of a fit.
_USUAL_SCALE = 0.21
_USUAL_REFINED_SCALE = 6.7
_PRIOR_WEIGHT = 4.0  # nats of log-likelihood per squared unit of log scale
_WEAK_PRIOR_WEIGHT = 0.5  # where no scale is usual: for features of unknown origin, and other metrics


@dataclass(frozen=True)
class Calibration:
    """What left-out images taught."""

    scale: float
    images: int
    """Left-out images that it is of."""
    nearest: tuple[float, ...]
    """Squared Mahalanobis distance of each to the nearest class, ascending; empty for other metrics."""

    def merged(self, other: Calibration) -> Calibration:
        """Both together: the scale is the geometric mean by number of images."""
        images = self.images + other.images
        share = other.images / images if images else 0.5
        scale = self.scale ** (1 - share) * other.scale**share
        return Calibration(scale, images, tuple(sorted(self.nearest + other.nearest)))

    def threshold(self, quantile: float) -> float:
        """The distance that so large a part of the left-out images did not exceed."""
        return float(torch.tensor(self.nearest, dtype=torch.float64).quantile(quantile))


def temperature_unit(model: CnapsModel, classes: int, images: float, queries: float) -> float:
    """Return what the scale is multiplied by, for so many classes, support images and queries."""
    if model.config.refines:
        return (classes + images + queries) / classes
    return classes + images if _has_distances(model) and model.config.rule == "mahalanobis" else 1.0


@torch.no_grad()
def calibrate(
    continual: ContinualCnaps, features_ND: Tensor, labels_N: Tensor, *, known_features: bool
) -> Calibration:
    """Calibrate on images that were learned just now, each left out of the classes that it competes with.

    Args:
        continual: has learned them: as the first, or after others.
        features_ND: of the images.
        labels_N: class of each, as the memory has it.
        known_features: they are of a backbone for which a scale is known.
    """
    later = len(continual.classes_of_task) > 1
    if later and continual.pools_covariance and continual.config.memory_rank is None:  # of whole scatters
        keys = continual.memory.keys
        statistics = continual.memory.statistics(keys)
        position = torch.tensor([keys.index(ClassKey(-1, label)) for label in labels_N.tolist()])
    else:
        present, position = torch.unique(labels_N, return_inverse=True)
        statistics = support_statistics(features_ND.double(), position, len(present))
    labels_N = position.to(features_ND.device)
    return _calibrate(continual.model, statistics, features_ND, labels_N, known_features)


def _calibrate(
    model: CnapsModel, statistics: Statistics, features_ND: Tensor, labels_N: Tensor, known_features: bool
) -> Calibration:
    """Calibrate on images, with labels in 0..K-1, among the statistics of K classes: their own, or all learned."""
    usual = _USUAL_REFINED_SCALE if model.config.refines else _USUAL_SCALE
    n_classes, images = statistics.n_classes, float(statistics.total)
    unit = temperature_unit(model, n_classes, images, 0)
    has_unit = unit > 1
    if not has_unit:
        usual = float(model.temperature)
    weight = _PRIOR_WEIGHT if known_features and has_unit else _WEAK_PRIOR_WEIGHT
    left_out = _spread(torch.nonzero(statistics.counts_K[labels_N] > 1).flatten())
    if not len(left_out):
        return Calibration(usual, 0, ())
    nearest: tuple[float, ...] = ()
    if _has_distances(model):
        label_M = labels_N[left_out]
        distances_MK = leave_one_out_distances(statistics, features_ND[left_out], label_M, model.config.beta)
        nearest = tuple(distances_MK.amin(dim=1).double().sort().values.tolist())
    if nearest and not model.config.refines:
        logits_MK = -distances_MK if model.config.rule == "mahalanobis" else -distances_MK.sqrt()
    else:  # is fitted anew, which takes images: those of this task
        classes, labels_N, counts = torch.unique(labels_N, return_inverse=True, return_counts=True)
        n_classes = len(classes) if int(counts.max()) > 1 else 0
        if n_classes > 1:
            logits_MK, label_M = _folded_logits(model, features_ND, labels_N, n_classes)
            unit = temperature_unit(model, n_classes, len(labels_N) - n_classes, n_classes)
    if n_classes < 2:
        return Calibration(usual, 0, nearest)
    return Calibration(_best_scale(logits_MK, label_M, usual, weight, unit), len(left_out), nearest)


def _has_distances(model: CnapsModel) -> bool:
    """Whether its logits are Mahalanobis distances under the paper's covariances, before any refinement."""
    config = model.config
    return (
        config.model in ("simple", "transductive")
        and config.rule in _MAHALANOBIS
        and config.normaliser == "paper"
    )


def _folded_logits(
    model: CnapsModel, features_ND: Tensor, labels_N: Tensor, n_classes: int
) -> tuple[Tensor, Tensor]:
    """Logits of images under a classifier without them, one image of every class left out at a time."""
    same_NN = labels_N[:, None] == labels_N
    rank_N = (same_NN & torch.ones_like(same_NN).tril(-1)).sum(dim=1)
    count_N = same_NN.sum(dim=1)
    logits, labels = [], []
    for fold in range(min(_FOLDS, int(count_N.max()))):
        out_N = (rank_N == fold) & (count_N > 1)
        if bool(out_N.any()):
            head = model.fit(features_ND[~out_N], labels_N[~out_N], n_classes)
            logits.append(model.logits(head, features_ND[out_N]))
            labels.append(labels_N[out_N])
    return torch.cat(logits), torch.cat(labels)


def _best_scale(logits_MK: Tensor, label_M: Tensor, usual: float, weight: float, unit: float) -> float:
    """Maximise likelihood times prior over a grid of log scales, fine enough for probabilities."""
    logits_MK, label_M = logits_MK.double().cpu(), label_M.cpu()
    steps = torch.linspace(-8, 8, 641, dtype=torch.float64)
    loss = torch.stack(
        [
            torch.nn.functional.cross_entropy(
                logits_MK / (usual * unit * math.exp(step)), label_M, reduction="sum"
            )
            for step in steps.tolist()
        ]
    )
    return usual * math.exp(float(steps[(loss + weight * steps.square()).argmin()]))


def _spread(numbers: Tensor) -> Tensor:
    """At most so many of them as pay, evenly over all."""
    if len(numbers) <= _MOST_LEFT_OUT:
        return numbers
    return numbers[torch.linspace(0, len(numbers) - 1, _MOST_LEFT_OUT).round().long()]
