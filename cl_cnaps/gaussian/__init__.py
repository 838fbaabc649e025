"""The closed-form classifier: class and task statistics, regularised Gaussians, distances, refinement.

Torch only: no modules, files or devices. Every function is pure and returns a value.

Shape legend: K classes, D feature width, N support rows, Q queries, R factor rows.
"""

from cl_cnaps.gaussian.distances import METRICS, Metric, class_logits
from cl_cnaps.gaussian.gaussians import Gaussians, Normaliser, concatenate, estimate, merge
from cl_cnaps.gaussian.mahalanobis import mahalanobis_logits
from cl_cnaps.gaussian.refinement import Refinement, refine
from cl_cnaps.gaussian.statistics import Statistics, combine, pool, support_statistics, weighted_statistics

__all__ = [
    "METRICS",
    "Gaussians",
    "Metric",
    "Normaliser",
    "Refinement",
    "Statistics",
    "class_logits",
    "combine",
    "concatenate",
    "estimate",
    "mahalanobis_logits",
    "merge",
    "pool",
    "refine",
    "support_statistics",
    "weighted_statistics",
]
