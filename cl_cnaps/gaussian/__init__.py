"""The closed-form classifier: class and task statistics, regularised Gaussians, distances, refinement.

Torch only: no modules, files or devices. Every function is pure and returns a value.

Shape legend: K classes, D feature width, N support rows, Q queries, R factor rows.
"""

from cl_cnaps.gaussian.distances import (
    FIT_RULES,
    MEANS_ALONE,
    RULES,
    Metric,
    Rule,
    class_logits,
    metric,
    metric_names,
)
from cl_cnaps.gaussian.gaussians import (
    Gaussians,
    Normaliser,
    concatenate,
    estimate,
    estimate_weighted,
    merge,
)
from cl_cnaps.gaussian.mahalanobis import mahalanobis_logits
from cl_cnaps.gaussian.refinement import Refinement, Rounds, Unbounded, refine, refinement_rounds
from cl_cnaps.gaussian.statistics import (
    Moment,
    Scatter,
    Statistics,
    at_most_width,
    combine,
    join,
    pool,
    support_statistics,
    weighted_statistics,
)

__all__ = [
    "FIT_RULES",
    "MEANS_ALONE",
    "RULES",
    "Gaussians",
    "Metric",
    "Moment",
    "Normaliser",
    "Refinement",
    "Rounds",
    "Rule",
    "Scatter",
    "Statistics",
    "Unbounded",
    "at_most_width",
    "class_logits",
    "combine",
    "concatenate",
    "estimate",
    "estimate_weighted",
    "join",
    "mahalanobis_logits",
    "merge",
    "metric",
    "metric_names",
    "pool",
    "refine",
    "refinement_rounds",
    "support_statistics",
    "weighted_statistics",
]
