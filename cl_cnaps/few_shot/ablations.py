"""The paper's ablations: which methods are compared, on which tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cl_cnaps.data import open_source
from cl_cnaps.errors import BadInputError
from cl_cnaps.few_shot.evaluation_sets import evaluation_set
from cl_cnaps.few_shot.targets import (
    META_DATASET,
    Target,
    TargetSet,
    is_there,
    plan,
    takes_specs,
    task_shapes,
)
from cl_cnaps.gaussian import FIT_RULES, Metric, Unbounded
from cl_cnaps.models.adaptation import Column
from cl_cnaps.models.config import CnapsConfig, Responsibilities
from cl_cnaps.names import ModelName, Variant, weights_model

QUERIES = (10, 20, 30, 40, 50)
"""Of each class, as in fig:query-num-vs-performance."""
GLYPHS = "glyphs"
"""Not of Meta-Dataset, and out of its domain."""
GRID_MIN, GRID_MAX = range(5), range(1, 9)
"""Steps of refinement of the grid (fig:max-and-min)."""


@dataclass(frozen=True)
class AblationRow:
    """A row of an ablation: a model with one thing changed."""

    key: str
    title: str
    """As the paper calls its row."""
    model: ModelName
    variant: Variant = "plain"
    metric: Metric = "mahalanobis"
    modulation: Column = "own"
    responsibilities: Responsibilities | None = None
    """None for those of the options."""
    refine: tuple[int, int | Unbounded] | None = None
    """Least and most steps; None for the usual ones of the tasks."""
    of_grid: bool = False
    """Whether it is a cell of a grid, which is read for its mean alone."""

    @property
    def own_weights(self) -> bool:
        """Whether it differs from another row in its training alone, and so needs weights of its own."""
        return self.variant == "plus" or self.metric in FIT_RULES

    def config(self, base: CnapsConfig, usual: tuple[int, int]) -> CnapsConfig:
        """Its settings on the features of a model that was loaded for it."""
        least, most = self.refine or usual
        return replace(
            base,
            model=self.model,
            variant=self.variant,
            metric=self.metric,
            responsibilities=self.responsibilities or base.responsibilities,
            refine_min=least,
            refine_max=most,
        )  # the modulation is that of the loaded model, which makes the features

    @property
    def features(self) -> str:
        """Whose adapted features it has: methods with the same share them."""
        if self.modulation != "own":
            return self.modulation
        return self.key if self.own_weights else weights_model(self.model, self.variant)


_SIMPLE = AblationRow("simple", "Simple", "simple")
_TRANSDUCTIVE = AblationRow("transductive", "Transductive", "transductive")
_GRID = tuple(
    AblationRow(
        f"{least}-{most}",
        f"Min {least} Max {most}",
        "transductive",
        refine=(least, most),
        of_grid=(least, most) != (2, 4),  # which is a row of the paper's table
    )
    for least in GRID_MIN
    for most in GRID_MAX
    if least <= most
)

ABLATIONS: Mapping[str, tuple[AblationRow, ...]] = {
    "adaptation": (
        AblationRow("own", "Own", "simple"),
        AblationRow("static", "Static", "simple", modulation="static"),
        AblationRow("swapped", "Swapped", "simple", modulation="swapped"),
        AblationRow("frozen", "Frozen", "simple", modulation="frozen"),
    ),
    "metric": (
        AblationRow("dot", "Negative Dot Product", "simple", metric="dot"),
        AblationRow("cosine", "Cosine Similarity", "simple", metric="cosine"),
        AblationRow("l1", "Absolute Distance (L1)", "simple", metric="l1"),
        AblationRow("euclidean", "Squared Euclidean (L2²)", "simple", metric="euclidean"),
        AblationRow("mahalanobis", "Squared Mahalanobis", "simple"),
        AblationRow("root-riemannian", "Root Riemannian", "simple", metric="root-riemannian"),
        AblationRow("fit-qda", "FiT QDA", "simple", metric="fit-qda"),
        AblationRow("fit-lda", "FiT LDA", "simple", metric="fit-lda"),
    ),
    "gmm": (
        AblationRow("gmm", "GMM", "simple", "gmm"),
        AblationRow("gmm-em", "GMM-EM", "transductive", "gmm-em"),
        _SIMPLE,
        _TRANSDUCTIVE,
    ),
    "transduction": (
        AblationRow("plus", "Transductive+", "transductive", "plus"),
        AblationRow("feot", "FEOT", "transductive", "feot"),
        AblationRow("cot", "COT", "transductive", "cot"),
        _SIMPLE,
        _TRANSDUCTIVE,
    ),
    "refinement": (
        replace(_SIMPLE, title="Simple CNAPS"),
        AblationRow("none", "No Refinements", "transductive", refine=(0, 0)),
        AblationRow("free", "No Min/Max", "transductive", refine=(0, "unbounded")),
        AblationRow("raw", "Min 2 Max 4, raw", "transductive", responsibilities="raw", refine=(2, 4)),
        *_GRID,
    ),
    "shots": (_SIMPLE, _TRANSDUCTIVE),
    "queries": (_SIMPLE, _TRANSDUCTIVE),
}


def left_out(which: str, rows: Collection[str]) -> tuple[AblationRow, ...]:
    """The methods of an ablation that have no row, for lack of weights; none of an ablation not known here."""
    return tuple(method for method in ABLATIONS.get(which, ()) if method.key not in rows)


def check_rows(which: str, weights: Collection[str]) -> None:
    """Refuse weights for a row that the ablation does not have."""
    methods = ABLATIONS[which]
    if unknown := [key for key in weights if key not in {one.key for one in methods}]:
        raise BadInputError(
            f"the ablation {which} has no row {unknown[0]!r} to give weights to; it has "
            + ", ".join(one.key for one in methods)
        )


def rows_of(
    which: str, loaded: Collection[str], weights: Collection[str], adaptation: str
) -> tuple[AblationRow, ...]:
    """The methods of an ablation that can be compared: those for which a model could be loaded.

    `weights` are the rows that weights were given for, which must not be left out in silence.
    """
    methods = ABLATIONS[which]
    for one in methods:
        if one.own_weights and one.key in weights and adaptation == "none":
            raise BadInputError(
                f"{one.title} differs in what its adaptation learned: without adaptation it has no row"
            )
    return tuple(one for one in methods if one.key in loaded)


def targets_of(
    which: str, sources: Sequence[str], specs: Path | None, *, download: bool = True
) -> tuple[Target, ...]:
    """The tasks of an ablation: of Meta-Dataset, or for `queries` of mini-ImageNet; of `sources` if any are named.

    Where nothing of it is there and no source is named: of what every installation has.
    """
    if which == "queries":
        names = sources or (
            ("mini-imagenet",) if is_there("mini-imagenet") else ("mnist",)
        )  # glyphs are too few
        some = any(map(takes_specs, names))  # if none does, `plan` refuses them
        return tuple(
            plan(
                name,
                task_shapes(name, ways=(5,), shots=(1, 5), vary_queries=QUERIES),
                specs=specs if takes_specs(name) or not some else None,
                download=download,
            )
            for name in names
        )
    shapes = task_shapes(META_DATASET)
    known = [name for name in sources if name != GLYPHS]
    found = Target(META_DATASET, (), shapes)
    if known or not sources:
        found = plan(META_DATASET, shapes, specs=specs, only=known, download=download)
    if GLYPHS in sources or (not sources and found.nothing_but_digits):
        drawn = evaluation_set(open_source(GLYPHS))
        found = replace(found, sets=(*found.sets, TargetSet(GLYPHS, "Glyphs", "out", drawn)))
    return (found,)
